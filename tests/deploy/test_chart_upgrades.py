"""Upgrades and neighbours: what can never be changed does not change, and no two releases meet."""

from typing import Any

import pytest

from tests.deploy.golden import CASES
from tests.deploy.helm import HELM, MISSING
from tests.deploy.rendering import Chart, Release

pytestmark = pytest.mark.skipif(not HELM.exists(), reason=MISSING)

CHANGES: list[dict[str, Any]] = [
    {"image": {"tag": "2"}, "commonLabels": {"a": "b"}, "podLabels": {"c": "d"}},
    {"gpu": {"mode": "plugin"}, "nodeSelector": {"other": "yes"}, "env": {"A": "1"}},
    CASES["closed"],
]


def _selectors(release: Release) -> dict[str, Any]:
    return {each["metadata"]["name"]: each["spec"]["selector"] for each in release.workloads}


@pytest.mark.parametrize("change", CHANGES, ids=["labels", "gpus", "sources"])
def test_a_workloads_selector_stays(change: dict[str, Any], chart: Chart) -> None:
    assert _selectors(chart(change)) == _selectors(chart({}))


def test_a_pools_selector_stays_when_others_come_and_go(chart: Chart) -> None:
    few = _selectors(chart({"pools": {"b": {}}}))
    many = _selectors(chart({"pools": {"a": {}, "b": {"replicas": 2}, "c": {}}}))
    assert few.items() <= many.items()


def _names(release: Release) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in release.objects}


@pytest.mark.parametrize("case", CASES)
def test_two_releases_in_one_namespace_share_nothing(case: str, chart: Chart) -> None:
    one, other = chart(CASES[case]), chart(CASES[case], name="second")
    assert not _names(one) & _names(other)
    for service in one.all("Service"):
        selected = service["spec"]["selector"].items()
        for each in other.workloads:
            assert not selected <= each["spec"]["template"]["metadata"]["labels"].items()
        assert selected <= one.workloads[0]["spec"]["template"]["metadata"]["labels"].items()


LONG = "a-release-with-a-name-as-long-as-helm-takes-them-0123"


@pytest.mark.parametrize("case", CASES)
def test_the_longest_name_fits(case: str, chart: Chart) -> None:
    assert len(LONG) == 53
    release = chart(CASES[case], name=LONG)
    for each in release.objects:
        assert len(each["metadata"]["name"]) <= 63
        assert all(len(value) <= 63 for value in each["metadata"]["labels"].values())


def test_long_names_that_begin_alike_stay_apart(chart: Chart) -> None:
    assert not _names(chart({}, name=LONG)) & _names(chart({}, name=f"{LONG[:-1]}4"))


@pytest.mark.parametrize(
    ("name", "values", "expected"),
    [
        ("xgen", {}, "xgen-xgen-model"),
        ("xgen-model", {}, "xgen-model"),
        ("xgen", {"fullnameOverride": "llm"}, "llm"),
    ],
)
def test_how_objects_are_called(
    name: str, values: dict[str, Any], expected: str, chart: Chart
) -> None:
    release = chart(values, name=name)
    assert release.workload()["metadata"]["name"] == expected
    assert release.environment()["XGEN_PEERS"].startswith(f"dns:{expected}-peers.models.")
