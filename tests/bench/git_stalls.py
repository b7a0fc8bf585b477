"""How long the event loop stands still while a repository is asked, and while a push is fetched.

The real source in this process, on a loop that does nothing else but look at the clock.
"""

import asyncio
import os
import time
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.source.git import GitSource
from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import parse_address
from tests.e2e.manifests import manifest, model
from tests.source.git_repository import Repository

_MODELS = 1000
_BEAT_SECONDS = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class Stalls:
    """Milliseconds. `taken`: from the request to look to the files of a push. Longest times between
    two turns of the loop, for each push: `pushed`; for a look that finds nothing new: `same`; for
    as long a time without any: `idle`."""

    taken: tuple[float, ...]
    pushed: tuple[float, ...]
    same: tuple[float, ...]
    idle: tuple[float, ...]


async def measure_stalls(root: Path, *, pushes: int) -> Stalls:
    repository = Repository(root=root / "remote")
    text = manifest(*(model(f"m{number}", nodes="[node-b]") for number in range(_MODELS)))
    repository.push({"m/models.yaml": text})
    source = GitSource(
        parse_address(repository.url("ref=main&path=m")),
        GitAccess(search_path=os.environ["PATH"]),
        root / "scratch",
        interval_seconds=3600.0,
        now=lambda: "",
    )
    taken, pushed, same, idle = [], [], [], []
    async with aclosing(source.snapshots()) as snapshots:
        await anext(snapshots)
        for number in range(pushes):
            await asyncio.to_thread(repository.push, {"m/models.yaml": f"# {number}\n{text}"})
            coming = asyncio.ensure_future(anext(snapshots))
            await asyncio.sleep(0)
            began = time.perf_counter()
            source.look_again()
            pushed.append(await _longest_gap(coming))
            taken.append((time.perf_counter() - began) * 1e3)
            assert (await coming).error is None
            looks = asyncio.ensure_future(source.read())
            same.append(await _longest_gap(looks))
            idle.append(await _longest_gap(asyncio.ensure_future(asyncio.sleep(taken[-1] / 1e3))))
    return Stalls(taken=tuple(taken), pushed=tuple(pushed), same=tuple(same), idle=tuple(idle))


async def _longest_gap(work: asyncio.Future[Any]) -> float:
    """Until the work is done, beyond the pause between two looks at the clock."""
    longest, last = 0.0, time.perf_counter()
    while not work.done():
        await asyncio.sleep(_BEAT_SECONDS)
        now = time.perf_counter()
        longest, last = max(longest, now - last - _BEAT_SECONDS), now
    return max(0.0, longest) * 1e3
