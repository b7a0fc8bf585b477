"""The chart with some values, and the parts of its objects that tests ask for."""

import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.helm import HelmFailed, render

Values = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Release:
    """The objects of one release, each its own copy."""

    objects: list[Any]

    def all(self, kind: str) -> list[Any]:
        return [each for each in self.objects if each["kind"] == kind]

    def one(self, kind: str, name: str | None = None) -> Any:
        """The only one of the kind, or that of the name."""
        found = [each for each in self.all(kind) if name in (None, each["metadata"]["name"])]
        assert len(found) == 1, [each["metadata"]["name"] for each in self.all(kind)]
        return found[0]

    @property
    def workloads(self) -> list[Any]:
        return self.all("Deployment") + self.all("DaemonSet")

    def workload(self, pool: str = "default") -> Any:
        found = [
            each for each in self.workloads if each["metadata"]["labels"]["xgen.io/pool"] == pool
        ]
        assert len(found) == 1, [each["metadata"]["name"] for each in self.workloads]
        return found[0]

    def pod(self, pool: str = "default") -> Any:
        return self.workload(pool)["spec"]["template"]["spec"]

    def agent(self, pool: str = "default") -> Any:
        return self.pod(pool)["containers"][0]

    def environment(self, pool: str = "default") -> dict[str, Any]:
        """Name to text, or to what stands in `valueFrom`."""
        entries = self.agent(pool)["env"]
        found = {each["name"]: each.get("value", each.get("valueFrom")) for each in entries}
        assert len(found) == len(entries)
        return found

    def volume(self, name: str, pool: str = "default") -> Any:
        """None where there is none."""
        found = [each for each in self.pod(pool)["volumes"] if each["name"] == name]
        assert len(found) <= 1
        return found[0] if found else None

    def mount(self, name: str, pool: str = "default") -> Any:
        """None where there is none."""
        found = [each for each in self.agent(pool)["volumeMounts"] if each["name"] == name]
        assert len(found) <= 1
        return found[0] if found else None


@dataclass(slots=True)
class Chart:
    """Renders with real helm, the same values once.

    `folder`: for helm's home and files of values.
    """

    folder: Path
    _done: dict[str, list[Any]] = field(default_factory=dict)

    def __call__(
        self, values: Values | None = None, *arguments: str, name: str = "xgen"
    ) -> Release:
        """Raises HelmFailed where the values are refused."""
        key = yaml.safe_dump([values, arguments, name])
        if key not in self._done:
            place = self.folder / "values.yaml"
            place.write_text(yaml.safe_dump(values or {}), encoding="utf-8")
            self._done[key] = render("-f", str(place), *arguments, home=self.folder, release=name)
        return Release(copy.deepcopy(self._done[key]))

    def refusal(self, values: Values) -> str:
        """What helm says of values that it refuses."""
        try:
            self(values)
        except HelmFailed as exc:
            return str(exc)
        raise AssertionError(f"taken: {values}")
