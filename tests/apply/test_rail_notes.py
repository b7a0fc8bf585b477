"""What is suspended and confirmed is known to the next agent, or nothing is begun."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reconciler.apply.rail_notes import RailFile, RailNotes
from reconciler.errors import Transient
from reconciler.plan.desired import WaitingRevision
from reconciler.plan.ids import ModelName
from reconciler.plan.stop_limit import NO_STOP_LIMIT, StopLimit
from reconciler.plan.suspension import Suspension

NOW = "2026-12-01T00:00:00+00:00"
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NAMES = TEXTS.map(ModelName)
SUSPENSIONS = st.builds(
    Suspension,
    model=st.none() | NAMES,
    by=TEXTS,
    reason=TEXTS,
    since=st.just(NOW),
    until=st.none() | st.just(NOW),
)
WAITING = st.builds(
    WaitingRevision,
    revision=TEXTS,
    stops=st.lists(NAMES).map(tuple),
    running=st.integers(0, 9),
    limit=st.sampled_from([NO_STOP_LIMIT, StopLimit(percent=25), StopLimit(count=0)]),
)
NOTES = st.builds(
    RailNotes,
    suspensions=st.lists(SUSPENSIONS, max_size=3).map(tuple),
    confirmed=st.none() | TEXTS,
    waiting=st.lists(WAITING, max_size=3).map(tuple),
    hurried=st.none() | TEXTS,
)
HELD = RailNotes(suspensions=(Suspension(by="kim", reason="so", since=NOW),))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(notes=NOTES)
def test_what_is_written_is_read_again(tmp_path: Path, notes: RailNotes) -> None:
    RailFile(tmp_path).save(notes)

    assert RailFile(tmp_path).load(now=NOW) == (notes, None)


def test_a_fresh_folder_holds_nothing_back(tmp_path: Path) -> None:
    assert RailFile(tmp_path).load(now=NOW) == (RailNotes(), None)


def path(folder: Path) -> Path:
    (found,) = folder.glob("rails*")
    return found


@pytest.mark.parametrize("damage", ["cut", "changed", "empty", "another version", "folder"])
def test_a_damaged_file_suspends_the_node(tmp_path: Path, damage: str) -> None:
    """Who knows what somebody works on just now; scenario 44, gpustack#4207."""
    RailFile(tmp_path).save(HELD)
    file = path(tmp_path)
    content = file.read_bytes()
    match damage:
        case "cut":
            file.write_bytes(content[:-20])
        case "changed":
            file.write_bytes(content.replace(b"kim", b"tim"))
        case "empty":
            file.write_bytes(b"")
        case "another version":
            file.write_bytes(content.replace(b'"version": 1', b'"version": 9'))
        case _:
            file.unlink()
            file.mkdir()
    notes, problem = RailFile(tmp_path).load(now=NOW)

    assert [each.model for each in notes.suspensions] == [None]
    assert "xgen-model resume" in notes.suspensions[0].reason
    assert problem is not None
    assert str(file) in problem


def test_what_somebody_removes_is_written_anew(tmp_path: Path) -> None:
    file = RailFile(tmp_path)
    file.save(HELD)
    path(tmp_path).unlink()

    kept = file.keep()

    assert "written anew" in kept.rewritten[0]
    assert RailFile(tmp_path).load(now=NOW) == (HELD, None)


def test_a_write_that_fails_says_why(tmp_path: Path) -> None:
    (tmp_path / "data").touch()  # a file where the folder should be

    with pytest.raises(Transient, match=r"cannot write .*rails\.json"):
        RailFile(tmp_path / "data").save(HELD)
