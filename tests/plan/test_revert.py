"""Which of two a model is to be (R7): cases, and that it never goes to and fro between them."""

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.desired import DesiredModel, ModelSpec, OnFailure
from reconciler.plan.ids import FilesDigest, Instance, ModelName, Place, SpecHash
from reconciler.plan.observed import Failure
from reconciler.plan.retry import COSTLY_RETRIES, after_failure, next_attempt_at
from reconciler.plan.revert import LastGood, Situation, Trouble, reverted, reverts

NAME = ModelName("a")
FILES = FilesDigest("f1")
NEW = Instance(spec_hash=SpecHash("1:new"), files_digest=FILES)
GOOD = LastGood(
    spec=ModelSpec(source="gguf/a", digest="d1"), spec_hash=SpecHash("1:old"), files_digest=FILES
)
OLD = GOOD.instance
WANTED = DesiredModel(
    name=NAME,
    spec=ModelSpec(source="gguf/a", extra_args={"ctx_size": 1}),
    spec_hash=NEW.spec_hash,
    place=Place(file="models.yaml", line=1, column=1),
    priority=7,
)
FAILED = Trouble(reason="exited", due=300.0, costly=True)
FAILED_BEFORE = replace(FAILED, costly=False)


def situation(
    *runs: Instance,
    wanted: DesiredModel = WANTED,
    good: LastGood | None = GOOD,
    trouble: Trouble | None = FAILED,
    loads: frozenset[Instance] = frozenset(),
    was: bool = False,
    files: FilesDigest | None = FILES,
) -> Situation:
    return Situation(
        wanted=wanted,
        files_digest=files,
        last_good=good,
        trouble=trouble,
        runs=frozenset(runs),
        loads=loads,
        reverted=was,
    )


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(situation(), True, id="it failed after the stop"),
        pytest.param(situation(good=None), False, id="nothing was ever good"),
        pytest.param(situation(trouble=None), False, id="nothing is wrong"),
        pytest.param(
            situation(wanted=replace(WANTED, on_failure=OnFailure.KEEP)), False, id="keep"
        ),
        pytest.param(
            situation(wanted=replace(WANTED, on_failure=OnFailure.STOP)), False, id="stop"
        ),
        pytest.param(
            situation(wanted=replace(WANTED, keep_last_good=False)), False, id="nothing is kept"
        ),
        pytest.param(situation(wanted=replace(WANTED, enabled=False)), False, id="disabled"),
        pytest.param(situation(NEW), False, id="what is wanted runs"),
        pytest.param(
            situation(good=replace(GOOD, spec_hash=NEW.spec_hash)), False, id="it was good itself"
        ),
        pytest.param(
            situation(good=replace(GOOD, spec_hash=NEW.spec_hash, files_digest=FilesDigest("f0"))),
            True,
            id="only the files are new",
        ),
        pytest.param(
            situation(
                wanted=replace(WANTED, spec=replace(WANTED.spec, digest="sha256:d2")),
                good=replace(GOOD, spec_hash=NEW.spec_hash),
                files=None,
                trouble=FAILED_BEFORE,
            ),
            True,
            id="another push is pinned, and cannot be fetched",
        ),
        pytest.param(
            situation(OLD, trouble=FAILED_BEFORE), False, id="what serves was not stopped for it"
        ),
        pytest.param(situation(trouble=FAILED_BEFORE), True, id="what served has died meanwhile"),
        pytest.param(situation(OLD, trouble=FAILED_BEFORE, was=True), True, id="and serves again"),
        pytest.param(situation(OLD, trouble=FAILED), True, id="the block outlived the agent"),
    ],
)
def test_the_last_good_one(now: Situation, expected: bool) -> None:
    assert reverts(now, at=299.0) is expected


def test_once_it_is_due_the_new_one_is_tried_again_but_not_before_the_old_one_serves() -> None:
    serving = situation(OLD, was=True)
    assert reverts(serving, at=299.0)
    assert not reverts(serving, at=300.0)
    assert reverts(replace(serving, loads=frozenset({OLD})), at=1000.0)
    assert reverts(replace(serving, trouble=replace(FAILED, due=None)), at=1e9)


def test_what_comes_back_has_its_spec_and_the_manifests_other_fields() -> None:
    back = reverted(WANTED, GOOD)
    assert (back.spec, back.spec_hash, back.instead_of) == (GOOD.spec, OLD.spec_hash, NEW.spec_hash)
    assert (back.name, back.priority, back.place) == (NAME, 7, WANTED.place)


@dataclass
class _Node:
    """One model whose new spec never comes up, and whose old one does so if it is lucky."""

    now: float = 0.0
    runs: Instance | None = None
    loaded: bool = False
    reverted: bool = False
    failures: dict[Instance, Failure] = field(default_factory=dict)
    starts: list[Instance] = field(default_factory=list)

    def tick(self) -> None:
        failure = self.failures.get(NEW)
        due = next_attempt_at(failure, key=NAME) if failure else None
        trouble = Trouble(reason="x", due=due, costly=failure.costly) if failure else None
        loads = frozenset({self.runs}) if self.runs and not self.loaded else frozenset()
        there = situation(
            *([self.runs] if self.runs else []), trouble=trouble, loads=loads, was=self.reverted
        )
        self.reverted = reverts(there, self.now)
        chosen = OLD if self.reverted else NEW
        if self.runs not in (None, chosen):
            self.runs = None  # recreate: stopped for its successor
        own = self.failures.get(chosen)
        own_due = next_attempt_at(own, key=NAME) if own else 0.0
        if self.runs is None and own_due is not None and self.now >= own_due:
            self.runs, self.loaded = chosen, False
            self.starts.append(chosen)

    def ends(self, during: str, *, exited: bool) -> None:
        if self.runs is None:
            return
        ended, self.runs = self.runs, None
        self.failures[ended] = after_failure(
            self.failures.get(ended),
            spec_hash=ended.spec_hash,
            files_digest=ended.files_digest,
            at=self.now,
            reason="it ended",
            during=during,
            exited=exited,
            ever_loaded=ended == OLD,
            costly=ended == NEW,
        )


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["start", "load"]),
            st.booleans(),
            st.booleans(),
            st.sampled_from([1.0, 60.0, 301.0, 5000.0]),
        ),
        max_size=60,
    )
)
def test_a_spec_that_never_loads_is_tried_a_bounded_number_of_times(
    events: list[tuple[str, bool, bool, float]],
) -> None:
    node = _Node()
    for during, exited, lucky, seconds in events:
        node.tick()
        if node.runs == OLD and lucky:
            node.loaded = True
            node.failures.pop(OLD, None)
        elif not (node.runs == OLD and node.loaded):
            node.ends(during, exited=exited)
        node.now += seconds
    tries = node.starts.count(NEW)
    assert tries <= 1 + COSTLY_RETRIES
    pairs = zip(node.starts, node.starts[1:], strict=False)
    assert sum(one != other for one, other in pairs) <= 2 * (1 + COSTLY_RETRIES)


def test_five_ten_and_twenty_minutes_then_never() -> None:
    node = _Node()
    tried = []
    for _ in range(20_000):
        before = len(node.starts)
        node.tick()
        if len(node.starts) > before and node.starts[-1] == NEW:
            tried.append(node.now)
        if node.runs == NEW:
            node.ends("start", exited=False)
        else:
            node.loaded = True
        node.now += 1.0
    assert tried == [0.0, 300.0, 900.0, 2100.0]
