"""Ticks of the real loop in this process: real intent, cache, engines, plan and publisher.

Nothing but the bench calls `tick`: no source is watched, no backend runs.
"""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.apply.stop import Hurry
from reconciler.cache.model_cache import ModelCache
from reconciler.node.board import Board
from reconciler.node.hub import make_store
from reconciler.node.parts import Parts, assembled
from reconciler.plan.ids import NodeName
from reconciler.settings import HubSettings, Settings
from reconciler.status import Status
from tests.bench.peers import engine_script
from tests.e2e.agent import MINIMAL_GGUF
from tests.e2e.manifests import manifest, model
from tests.loop.ticking import until_engines_are_known

_NODE = NodeName("node-a")
_PREFIXES = 100
"""Beyond that, models share their files: no node holds more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ticks:
    """Milliseconds. `first`: the tick that takes the manifest up; `cpu`: a mean over all threads
    of one that finds nothing to do; `wall`: each of those."""

    kind: str
    models: int
    first: float
    cpu: float
    wall: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """A manifest whose models give the loop nothing to do."""

    name: str
    entry: Callable[[int], str]
    spec: str = ""


_KINDS = (
    _Kind(
        name="for other nodes",
        entry=lambda number: model(f"m{number}", nodes="[node-b]"),
    ),
    _Kind(
        name="here, disabled",
        entry=lambda number: model(f"m{number}", enabled="false"),
    ),
    _Kind(
        name="here, in the cache, suspended",
        entry=lambda number: model(f"m{number}", source=f"gguf/test_{number % _PREFIXES}"),
        spec="  suspend: true\n",
    ),
)


async def measure_ticks(root: Path, counts: Sequence[int], *, ticks: int) -> tuple[Ticks, ...]:
    """Every kind of manifest with every number of models, in folders below `root`."""
    measured: list[Ticks] = []
    for kind in _KINDS:
        for count in counts:
            folder = root / f"ticks-{len(measured)}"
            async with _parts(folder, kind, count) as parts:
                measured.append(await _ticks(parts, folder, kind, count, ticks))
    return tuple(measured)


async def _ticks(parts: Parts, folder: Path, kind: _Kind, models: int, ticks: int) -> Ticks:
    parts.intent.offer(await parts.source.read())
    began = time.perf_counter()
    await parts.reconciler.tick()
    first = time.perf_counter() - began
    await asyncio.to_thread(_fill_cache, parts, folder)
    await parts.reconciler.tick()  # what it sees of the cache is new
    wall = []
    cpu_before = time.process_time()
    for _ in range(ticks):
        began = time.perf_counter()
        await parts.reconciler.tick()
        wall.append((time.perf_counter() - began) * 1e3)
    cpu = (time.process_time() - cpu_before) * 1e3
    return Ticks(
        kind=kind.name, models=models, first=first * 1e3, cpu=cpu / ticks, wall=tuple(wall)
    )


def _fill_cache(parts: Parts, folder: Path) -> None:
    """Fetch from the hub what the manifest wants here, as the loop's effects would."""
    desired = parts.intent.understanding.desired
    cache = ModelCache(folder / "models", make_store(HubSettings(location=str(folder / "hub"))))
    for wanted in desired.models if desired else ():
        if wanted.enabled:
            cache.fetch(wanted.spec)


@asynccontextmanager
async def _parts(folder: Path, kind: _Kind, models: int) -> AsyncIterator[Parts]:
    manifests = folder / "manifests"
    manifests.mkdir(parents=True)
    text = manifest(*map(kind.entry, range(models)), spec=kind.spec)
    (manifests / "models.yaml").write_text(text)
    for number in range(min(models, _PREFIXES)):
        path = folder / "hub" / "gguf" / f"test_{number}" / "model.gguf"
        path.parent.mkdir(parents=True)
        path.write_bytes(MINIMAL_GGUF)
    settings = Settings(
        manifest=str(manifests),
        hub=HubSettings(location=str(folder / "hub")),
        data_dir=folder / "data",
        models_dir=folder / "models",
        llama_server=str(engine_script(folder / "llama-server", "exit 1")),
        environment=dict(os.environ),
    )
    board = Board(Status(node=_NODE))
    async with assembled(settings, _NODE, board, Hurry()) as parts:
        await until_engines_are_known(parts, board)
        yield parts
