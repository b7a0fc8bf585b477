"""The journal: bounded, read by cursor, followed."""

import asyncio

import pytest

from reconciler.errors import Rejected
from reconciler.events import EventKind, Journal
from reconciler.plan.ids import ModelName, NodeName


def journal(*, events: int = 0, kept: int = 1000) -> Journal:
    made = Journal(node=NodeName("n"), now=lambda: "2026-01-01T00:00:00+00:00", kept=kept)
    for number in range(1, events + 1):
        model = ModelName("even" if number % 2 == 0 else "odd")
        made.record(EventKind.ACTION_BEGUN, f"reason {number}", model=model)
    return made


def seqs(made: Journal, cursor: int = 0, model: str | None = None) -> list[int]:
    return [event.seq for event in made.after(cursor, model=model).events]


def test_a_reader_goes_on_where_it_was() -> None:
    made = journal(events=5)
    page = made.after(3)
    assert [event.seq for event in page.events] == [4, 5]
    assert (page.next, page.missed) == (5, 0)


def test_one_models_events_are_found_among_the_others() -> None:
    assert seqs(journal(events=5), model="even") == [2, 4]


def test_only_the_newest_are_kept_and_a_slow_reader_hears_how_many_it_missed() -> None:
    made = journal(events=10, kept=4)
    page = made.after(3)
    assert [event.seq for event in page.events] == [7, 8, 9, 10]
    assert page.missed == 3


def test_a_reader_without_a_cursor_missed_nothing() -> None:
    assert journal(events=10, kept=4).after(0).missed == 0


def test_a_cursor_of_an_earlier_run_begins_anew() -> None:
    made = journal(events=5)
    assert made.cursor(f"{made.run}:3") == 3
    assert made.cursor("3") == 3
    assert made.cursor("0123:3") == 0
    assert made.cursor("6") == 0
    assert made.cursor("") == 0


@pytest.mark.parametrize("text", ["x", "1.5", "-1", "run:", "run:x"])
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(Rejected):
        journal().cursor(text)


async def test_a_follower_is_woken_by_the_next_event() -> None:
    made = journal(events=2)
    waiting = asyncio.create_task(made.newer_than(2))
    await asyncio.sleep(0)
    assert not waiting.done()
    made.record(EventKind.AGENT_ENDING, "told to")
    await asyncio.wait_for(waiting, 5)
    assert seqs(made, 2) == [3]


def test_a_reason_without_end_is_cut() -> None:
    made = journal()
    made.record(EventKind.MANIFEST_REFUSED, "x" * 10_000)
    assert len(made.after(0).events[0].reason) == 2000
