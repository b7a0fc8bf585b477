"""Which bytes of an object each GET brings."""

import heapq

import pytest

from reconciler.hub.parts import Part, Runs, part_bytes_for, parts_of

MIB = 1 << 20
GIB = 1 << 30


def all_runs(parts: tuple[Part, ...], at_once: int) -> list[tuple[Part, ...]]:
    runs = Runs(parts)
    return list(iter(lambda: runs.take(at_once), ()))


@pytest.mark.parametrize("size_bytes", [0, 1, 8 * MIB, 8 * MIB + 1, 5 * GIB + 17, 700 * GIB])
def test_each_byte_is_in_one_part(size_bytes: int) -> None:
    parts = parts_of(size_bytes, part_bytes_for(size_bytes))

    assert [part.offset for part in parts] == [0, *(part.end for part in parts)][:-1]
    assert sum(part.size_bytes for part in parts) == size_bytes
    assert len(parts) <= 4096
    assert all(part.size_bytes <= 176 * MIB for part in parts)


@pytest.mark.parametrize("at_once", [1, 2, 16])
def test_a_get_brings_many_parts_at_first_and_one_at_the_end(at_once: int) -> None:
    parts = parts_of(5 * GIB, 8 * MIB)

    runs = all_runs(parts, at_once)

    assert [part for run in runs for part in run] == list(parts)
    lengths = [len(run) for run in runs]
    assert lengths[0] == 8
    assert lengths == sorted(lengths, reverse=True)
    assert set(lengths[-2 * at_once :]) == {1}


def test_a_get_passes_over_nothing_that_is_there() -> None:
    """A fetch that was killed has left finished parts in the middle."""
    missing = [part for part in parts_of(GIB, 8 * MIB) if part.index % 5 != 2]

    for run in (runs := all_runs(tuple(missing), 1)):
        assert [part.index for part in run] == list(range(run[0].index, run[0].index + len(run)))
    assert [part for run in runs for part in run] == missing


@pytest.mark.parametrize("seconds_a_part", [[1.0] * 16, [1.0 + n / 5 for n in range(16)]])
def test_connections_end_together_whatever_each_brings(seconds_a_part: list[float]) -> None:
    parts = parts_of(4 * GIB, 8 * MIB)
    runs = Runs(parts)
    free_at = [(0.0, number) for number in range(16)]
    ended = [0.0] * 16
    while run := runs.take(16):
        now, number = heapq.heappop(free_at)
        ended[number] = now + len(run) * seconds_a_part[number]
        heapq.heappush(free_at, (ended[number], number))

    ideal = len(parts) / sum(1 / each for each in seconds_a_part)
    assert max(ended) <= ideal / 0.9
