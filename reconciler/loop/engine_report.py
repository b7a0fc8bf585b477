"""What is told of engines: which there are, and how one that runs differs from what is installed
in its place by now (PURE)."""

from dataclasses import replace

from reconciler.backend.choice import Choice
from reconciler.backend.inventory import Build, Inventory, called
from reconciler.status import Engine, EngineStatus


def engines_of(inventory: Inventory) -> tuple[Engine, ...] | None:
    """All that can be started, and what an operator has named and cannot be. None: nobody has
    looked yet."""
    if not inventory.known:
        return None
    usable = [
        Engine(id=build.id, name=build.name, version=build.version, detail=build.detail)
        for build in inventory.builds
    ]
    gone = [
        Engine(id=gap.id, name=gap.name, problem=gap.reason)
        for gap in inventory.missing
        if gap.wanted
    ]
    return (*usable, *gone)


def engine_of(
    running: Build | None, choice: Choice | None, inventory: Inventory
) -> EngineStatus | None:
    """`running`: None: no process. `choice`: what would be started now. None: neither is known."""
    if running is None:
        if choice is None:
            return None
        build = choice.build
        return EngineStatus(name=build.name, version=build.version, installed=build.version)
    if not inventory.known:
        return EngineStatus(name=running.name, version=running.version)
    installed = inventory.successor(running)
    return EngineStatus(
        name=running.name,
        version=running.version,
        installed=installed.version if installed is not None else None,
        drift=_drift(running, installed, inventory),
    )


def with_drift(engine: EngineStatus | None, drift: str | None) -> EngineStatus | None:
    """`drift`: how a start by now would differ, beside the engine's files, as a clause."""
    if engine is None or drift is None:
        return engine
    said = f"an earlier agent has started it; started anew it would get {drift}"
    return replace(engine, drift=f"{engine.drift}; {said}" if engine.drift else said)


def reason_of(running: Build | None, choice: Choice | None) -> str | None:
    """Why this backend. A choice holds for as long as its process lives (R4)."""
    if choice is None:
        return None
    if running is None or running.key == choice.build.key:
        return choice.reason
    return f"{called(running)} since its start; from its next start on: {choice.reason}"


def _drift(running: Build, installed: Build | None, inventory: Inventory) -> str | None:
    if installed is None:
        return f"it runs, and could not be started again: {inventory.why_gone(running)}"
    if installed.files == running.files:
        return None
    was, now = running.version or "an unknown version", installed.version or "an unknown version"
    if was == now:
        return (
            f"its files were replaced since its start, by {now} again; used from its next start on"
        )
    return f"{was} runs, {now} is installed by now, and used from its next start on"
