"""Thousands of swaps of a mount, as kubelet does them, against a source that watches it."""

import asyncio
import random
import subprocess
import sys
from contextlib import aclosing
from pathlib import Path

import pytest

from reconciler.source.directory import DirectorySource
from reconciler.source.snapshot import Snapshot

_SWAPS = 5000
_KEYS = 7
_NO_POLL = 3600.0


def _number(snapshot: Snapshot) -> int:
    """Which of the swaps it is. Every one has all of its own files and no other's."""
    if snapshot.error is not None:
        assert "replaced faster" in snapshot.error
        return 0
    if not snapshot.files:
        return 0
    (text,) = {(file.content or b"?").decode() for file in snapshot.files}
    number, _, count = text.partition(" of ")
    assert [file.name for file in snapshot.files] == [f"{i:02}.yaml" for i in range(int(count))]
    return int(number)


@pytest.mark.slow
async def test_the_last_of_thousands_is_never_missed_and_none_is_half_read(tmp_path: Path) -> None:
    """By file events alone: no poll mends what they miss. The writer never waits for the reader,
    but for the last swap of each burst to be seen."""
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.source.atomic_writer", "bursts", tmp_path, str(_KEYS)),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert writer.stdin is not None
    assert writer.stdout is not None
    seen = [0]
    another = asyncio.Event()

    async def read() -> None:
        source = DirectorySource(tmp_path, poll_seconds=_NO_POLL)
        async with aclosing(source.snapshots()) as snapshots:
            async for snapshot in snapshots:
                number = _number(snapshot)
                assert number == 0 or number > seen[-1]
                seen.append(number or seen[-1])
                another.set()

    written = bursts = 0
    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        while written < _SWAPS:
            writer.stdin.write(b"%d\n" % random.choice((1, 1, 2, 3, 10, 100, 400)))
            bursts += 1
            async with asyncio.timeout(60):
                written = int(await writer.stdout.readline())
                while seen[-1] != written:
                    another.clear()
                    await another.wait()
        reading.cancel()
    writer.stdin.close()
    await writer.wait()
    print(f"{written} swaps in {bursts} bursts, {len(set(seen)) - 1} of them seen")
