"""What holds at every moment of the chaos, watched from a thread of its own.

instances   no two living processes of one instance; of one model two only in a surge
slots       an agent starts no more loads than it has slots
the truth   a pid that the status says serves lives, or the status stops saying so
R4          what serves as it is wanted keeps its process, as long as nothing touches it
strangers   live
"""

import threading
import time
from collections import defaultdict
from contextlib import suppress
from dataclasses import dataclass, field

import httpx

from tests.chaos import census
from tests.chaos.census import Backend, Census
from tests.chaos.world import World
from tests.e2e.agent import Entry

LOAD_SLOTS = 2
"""The agent's own default."""
_PAUSE_SECONDS = 0.2
_LIES_SECONDS = 15.0
"""A dead process may be said to serve for so long, on a busy machine."""
_SETTLED_SECONDS = 4.0
"""Untouched for so long and serving as wanted: no change to it is under way."""


@dataclass
class _Seen:
    """`touched`: how often the model had been touched when it was first seen so."""

    identity: tuple[int, int]
    touched: int
    since: float
    steady: bool = False


@dataclass
class Invariants:
    """`broken`: what did not hold, in words; the first one is what matters."""

    world: World
    broken: list[str] = field(default_factory=list)
    _serving: dict[str, _Seen] = field(default_factory=dict)
    _lies: dict[tuple[str, int], float] = field(default_factory=dict)
    _crowds: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "Invariants":
        self._client = httpx.Client(timeout=5, trust_env=False)
        self._thread = threading.Thread(target=self._watch, name="invariants")
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._client.close()

    def check(self) -> None:
        assert not self.broken, self.broken[0]

    def steady(self) -> list[str]:
        """Models that must answer now, if anything answers."""
        return sorted(
            name for name, seen in tuple(self._serving.items()) if self._holds(name, seen)
        )

    def _watch(self) -> None:
        while not self._ended.wait(_PAUSE_SECONDS):
            try:
                self._look()
            except Exception as exc:  # noqa: BLE001  the boundary of the thread
                self.broken.append(f"the watch itself failed: {exc!r}")
                return

    def _look(self) -> None:
        world = self.world
        with world.starting:
            census.reap(but=world.own_children)
        touched = dict(world.touched)
        seen = world.census()
        self._instances(seen)
        self._keeps(seen)
        self.broken += world.decoys.harmed()
        view = self._view()
        if view is None:
            self._lies.clear()
            return
        self._slots(view)
        self._truth(view)
        self._learn(view, seen, touched)

    def _view(self) -> Entry | None:
        if not self.world.answers:
            return None
        with suppress(httpx.HTTPError, OSError, ValueError, KeyError):
            answer = self._client.get(f"{self.world.agent.url}/api/cluster/_self")
            if answer.status_code == 200:
                view: Entry = answer.json()
                return view
        return None

    def _instances(self, seen: Census) -> None:
        by_model: dict[str, list[Backend]] = defaultdict(list)
        for each in seen.backends:
            by_model[each.model].append(each)
        for model, backends in by_model.items():
            too_many = len(backends) > 2
            twice = len({each.instance for each in backends}) < len(backends)
            # A look at /proc is no instant: who is both gone and there was only replaced.
            if (too_many or twice) and all(_lives(each) for each in backends):
                told = "; ".join(map(str, backends))
                self.broken.append(f"{model} runs {len(backends)} times: {told}")

    def _keeps(self, seen: Census) -> None:
        alive = {each.identity for each in seen.backends}
        for name, known in tuple(self._serving.items()):
            if known.touched != self.world.touched.get(name, 0):
                del self._serving[name]
            elif known.steady and known.identity not in alive:
                if _gone(known.identity) and known.touched == self.world.touched.get(name, 0):
                    self.broken.append(
                        f"{name} lost pid {known.identity[0]}, though nothing of it was touched"
                    )
                del self._serving[name]

    def _learn(self, view: Entry, seen: Census, touched: dict[str, int]) -> None:
        """Which models serve as they are wanted; `touched` is from before all looks. One that was
        disabled while no agent ran serves until the next one has read the manifest."""
        wishes = {name: each for name, each in self.world.desired.wishes.items() if each.enabled}
        now = time.monotonic()
        for entry in view["models"]:
            name = entry["name"]
            fitting = [
                each
                for each in seen.of(name)
                if name in wishes and each.pid == entry["pid"] and each.is_of(wishes[name])
            ]
            if entry["state"] != "loaded" or entry["target"] is not None or not fitting:
                self._serving.pop(name, None)
                continue
            found = _Seen(fitting[0].identity, touched.get(name, 0), now)
            known = self._serving.setdefault(name, found)
            if (known.identity, known.touched) != (found.identity, found.touched):
                self._serving[name] = found
            elif now - known.since > _SETTLED_SECONDS:
                known.steady = True
                if touched == self.world.touched:
                    self.world.served.add(name)

    def _holds(self, name: str, seen: _Seen) -> bool:
        return seen.steady and seen.touched == self.world.touched.get(name, 0)

    def _slots(self, view: Entry) -> None:
        born = self.world.agent_pid and census.start_ticks(self.world.agent_pid)
        loading = {
            entry["pid"]
            for entry in view["models"]
            if entry["pid"] is not None
            and "loading" in (entry["state"], (entry["target"] or {}).get("state"))
            and born is not None
            and (census.start_ticks(entry["pid"]) or 0) > born
        }
        crowd = len(loading) > LOAD_SLOTS
        self._crowds["slots"] = self._crowds["slots"] + 1 if crowd else 0
        if self._crowds["slots"] > 2:
            self.broken.append(f"{len(loading)} loads at a time: pids {sorted(loading)}")

    def _truth(self, view: Entry) -> None:
        now = time.monotonic()
        lies = {
            (entry["name"], entry["pid"])
            for entry in view["models"]
            if entry["state"] == "loaded" and census.start_ticks(entry["pid"]) is None
        }
        self._lies = {lie: self._lies.get(lie, now) for lie in lies}
        for (name, pid), since in self._lies.items():
            if now - since > _LIES_SECONDS:
                self.broken.append(f"the status says that {name} serves with dead pid {pid}")


def _lives(backend: Backend) -> bool:
    return not _gone(backend.identity)


def _gone(identity: tuple[int, int]) -> bool:
    pid, ticks = identity
    return census.start_ticks(pid) != ticks
