"""What was checked, with what came of it; all of it within one time limit."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from tests.waiting import wait_for

Figures = Mapping[str, object]


class Verdict(StrEnum):
    OK = "ok"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


class NotChecked(Exception):
    """Why something cannot be checked here, as a sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """What a check found. `figures`: for machines."""

    said: str
    figures: Figures = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """`of`: the engine, or `gpus`."""

    of: str
    name: str
    verdict: Verdict
    told: Told
    seconds: float


class Ledger:
    """Runs checks one after the other. `seconds`: for all of them together."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self.checks: list[Check] = []

    @property
    def failed(self) -> bool:
        return any(check.verdict is Verdict.FAILED for check in self.checks)

    def check(self, of: str, name: str, look: Callable[[], Told]) -> bool:
        """Whether it is ok. `look` raises AssertionError where it is not, NotChecked where it
        cannot be told."""
        began = time.monotonic()
        try:
            self._left(1.0)
            verdict, told = Verdict.OK, look()
        except NotChecked as exc:
            verdict, told = Verdict.NOT_CHECKED, Told(said=str(exc))
        except AssertionError as exc:
            verdict, told = Verdict.FAILED, Told(said=str(exc))
        except Exception as exc:  # noqa: BLE001  a check's boundary: the others are made all the same
            verdict, told = Verdict.FAILED, Told(said=repr(exc))
        seconds = round(time.monotonic() - began, 1)
        check = Check(of=of, name=name, verdict=verdict, told=told, seconds=seconds)
        self.checks.append(check)
        print(line(check), flush=True)
        return verdict is Verdict.OK

    def passed_over(self, of: str, names: Iterator[str], why: str) -> None:
        """What would follow from a check that is not ok."""

        def refuse() -> Told:
            raise NotChecked(why)

        for name in names:
            self.check(of, name, refuse)

    def wait(self, look: Callable[[], Told | None], *, what: str, seconds: float) -> Told:
        """Ask `look` until it tells something."""
        return wait_for(look, what=what, seconds=self._left(seconds))

    def _left(self, wanted: float) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise NotChecked("the time for all checks is over")
        return min(wanted, left)


def line(check: Check) -> str:
    """A row of the table."""
    said = check.told.said.splitlines() or [""]
    first = (
        f"{check.of:<13} {check.name:<28} {check.verdict:<12} {check.seconds:>6.1f} s  {said[0]}"
    )
    return "\n".join([first, *(f"{'':<66}{more}" for more in said[1:6])])
