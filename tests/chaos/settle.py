"""Whether what is desired runs, by the status and by /proc alike, and nothing else does."""

from collections.abc import Collection

from tests.chaos.census import Backend, Census
from tests.chaos.wishes import Wish
from tests.chaos.world import World
from tests.e2e.agent import Entry

FAILED = ("error", "blocked", "loading", "pending", "caching", "unloading")
"""What a model may be that cannot be had: it failed, and is perhaps tried again just now."""


def differences(world: World) -> list[str]:
    """What is not as it must be in the end; empty: it has settled."""
    view, seen = world.view(), world.census()
    if view is None:
        return ["the agent does not answer"]
    entries = {entry["name"]: entry for entry in view["models"]}
    wishes = world.desired.wishes
    found = [f"{name} is listed, and not wanted" for name in entries.keys() - wishes.keys()]
    found += [
        f"{each} runs, and is not wanted" for each in seen.backends if each.model not in wishes
    ]
    found += [f"orphan {each}" for each in seen.orphans() if not world.doubtful(each)]
    for name, wish in sorted(wishes.items()):
        if name not in entries:
            found.append(f"{name} is not listed")
        else:
            found += _of_one(wish, entries[name], seen, world.desired.past)
            if name in world.served and entries[name]["state"] != "loaded":
                found.append(f"{name} served, and does not after edits alone: {entries[name]}")
    return found


def _of_one(wish: Wish, entry: Entry, seen: Census, past: Collection[Wish]) -> list[str]:
    backends = seen.of(wish.name)
    said = f"{wish.name} is {entry['state']} ({entry['reason']}), target {entry['target']}"
    if not wish.enabled:
        return [] if entry["state"] == "disabled" and not backends else [f"{said}; it is disabled"]
    if wish.loads:
        return _of_a_good_one(wish, entry, backends, said)
    older = [each for each in past if each.name == wish.name and each.loads]
    return _of_a_bad_one(wish, entry, backends, said, older)


def _of_a_good_one(wish: Wish, entry: Entry, backends: list[Backend], said: str) -> list[str]:
    if entry["state"] != "loaded" or entry["target"] is not None:
        return [said]
    if [each.pid for each in backends] != [entry["pid"]]:
        return [f"{said}; its pid is {entry['pid']}, and there are {[*map(str, backends)]}"]
    if not backends[0].is_of(wish):
        return [f"{said}; wanted is {wish}, and there is {backends[0]}"]
    return []


def _of_a_bad_one(
    wish: Wish, entry: Entry, backends: list[Backend], said: str, older: list[Wish]
) -> list[str]:
    """Nothing of it serves; what did before it may, and the status tells of both."""
    target = entry["target"]
    if (target["state"] if target is not None else entry["state"]) not in FAILED:
        return [f"{said}; it cannot be had"]
    return [
        f"{said}; and there is {each}"
        for each in backends
        if not each.is_of(wish) and not any(each.is_of(one) for one in older)
    ]
