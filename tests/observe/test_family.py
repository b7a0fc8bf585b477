"""Who is ours, for tables that no test can bring about for sure (pids given anew)."""

from collections.abc import Mapping

from reconciler.observe.family import Lineage, family, strangers
from reconciler.observe.processes import Process

NONCE = "n"
AGENT = 2
LEADER = 100


def process(pid: int, *, parent: int = 1, session: int = LEADER, start: int = 0) -> Process:
    return Process(
        pid=pid,
        name="engine",
        state="S",
        parent=parent,
        group=session,
        session=session,
        start_ticks=start or pid,
    )


def ours(
    *processes: Process,
    nonces: Mapping[int, str],
    held: bool = False,
    reaper: int | None = None,
    known: Mapping[int, int] | None = None,
    sessions: tuple[int, ...] = (LEADER,),
) -> list[int]:
    lineage = Lineage(nonce=NONCE, sessions=sessions, held=held, reaper=reaper, known=known or {})
    table = {each.pid: each for each in processes}
    return [each.pid for each in family(lineage, table, nonces.get)]


def test_one_member_with_the_nonce_proves_the_session() -> None:
    assert ours(process(100), process(101), nonces={101: NONCE}) == [100, 101]


def test_a_session_without_the_nonce_is_somebody_elses() -> None:
    assert ours(process(100), process(101), nonces={101: "other"}) == []


def test_a_session_whose_leader_is_not_reaped_is_ours_whatever_it_shows() -> None:
    assert ours(process(100), process(101), nonces={}, held=True) == [100, 101]


def test_descendants_outside_the_session_are_ours_by_their_nonce() -> None:
    family_ = (process(100), process(101, parent=100, session=101), process(102, parent=101))
    nonces = {100: NONCE, 101: NONCE, 102: NONCE}

    assert ours(*family_, nonces=nonces) == [100, 101, 102]


def test_descendants_without_the_nonce_outside_the_session_are_not() -> None:
    assert ours(process(100), process(101, parent=100, session=101), nonces={100: NONCE}) == [100]


def test_orphans_that_came_to_the_agent_are_ours_by_their_nonce() -> None:
    orphan, other = process(101, parent=AGENT, session=101), process(102, parent=AGENT, session=2)

    assert ours(orphan, other, nonces={101: NONCE}, reaper=AGENT) == [101]


def test_a_copied_nonce_elsewhere_is_a_stranger() -> None:
    leader, copy = process(100), process(200, session=200)
    nonces = {100: NONCE, 200: NONCE}
    assert ours(leader, copy, nonces=nonces) == [100]

    lineage = Lineage(nonce=NONCE, sessions=(LEADER,), known={})
    table = {100: leader, 200: copy}
    assert strangers(lineage, [leader], table, nonces.get) == (copy,)


def test_whom_an_earlier_look_has_proven_stays_ours() -> None:
    assert ours(process(101, session=101), nonces={}, known={101: 101}) == [101]


def test_a_pid_given_anew_is_not_ours() -> None:
    again = process(101, session=101, start=999)

    assert ours(again, nonces={}, known={101: 101}) == []
    assert ours(process(300, session=LEADER, start=999), nonces={}) == []
