"""The chart as a whole: what helm and Kubernetes themselves say of it."""

from pathlib import Path

import pytest
import yaml

from tests.deploy.helm import CHART, HELM, MISSING, ROOT, helm, render
from tests.deploy.validation import OLDEST, VERSIONS, refused

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

SCENARIOS = sorted((CHART / "scenarios").glob("*.yaml"))
VALUES: list[Path | None] = [None, *SCENARIOS]


def _names(values: Path | None) -> str:
    return values.stem if values else "default"


def _files(values: Path | None) -> list[str]:
    return ["-f", str(values)] if values else []


@pytest.mark.parametrize("values", VALUES, ids=_names)
def test_lint_finds_nothing(values: Path | None, tmp_path: Path) -> None:
    said = helm("lint", "--strict", str(CHART), *_files(values), home=tmp_path)
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("values", VALUES, ids=_names)
def test_an_api_server_takes_every_object(
    values: Path | None, version: str, tmp_path: Path
) -> None:
    objects = render(*_files(values), "--kube-version", version, home=tmp_path)
    assert len(objects) >= 4
    # Those of Prometheus' operator are not Kubernetes' own.
    own = [each for each in objects if "monitoring.coreos.com" not in each["apiVersion"]]
    assert refused(own, version) == []


def test_a_packaged_chart_renders_alike(tmp_path: Path) -> None:
    helm("package", str(CHART), "--destination", str(tmp_path), home=tmp_path)
    (package,) = tmp_path.glob("xgen-model-*.tgz")
    alike = [
        helm("template", "xgen", str(chart), "-n", "models", home=tmp_path)
        for chart in (package, CHART)
    ]
    assert alike[0] == alike[1]


def test_an_object_that_is_wrong_would_be_found(tmp_path: Path) -> None:
    objects = render(home=tmp_path)
    workload = next(each for each in objects if each["kind"] == "Deployment")
    workload["spec"]["template"]["spec"]["enableServiceLink"] = False
    assert len(refused(objects, OLDEST)) == 1


def test_release_and_chart_are_of_one_version() -> None:
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    assert f'version = "{chart["appVersion"]}"' in project
