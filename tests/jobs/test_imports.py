"""Imports as jobs: joined, in turn, cancelled, resumed, forgotten."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from reconciler.errors import Rejected, Transient
from reconciler.jobs.imports import KEPT, Imports, Steps
from reconciler.jobs.job import Ask, Job, JobState
from reconciler.jobs.news import (
    ImportCancelled,
    ImportCompleted,
    ImportFailed,
    ImportStarted,
    News,
)
from reconciler.jobs.store import JobStore
from reconciler.plan.repository import parse_repository
from tests.waiting import wait_until

_CLOCK = count()


def ask(text: str = "org/m", **more: str) -> Ask:
    return Ask(repository=parse_repository(text), file=more.get("file"))


@dataclass(frozen=True)
class Had:
    digest: str | None = "d"
    commit: str | None = "c"
    size_bytes: int = 10
    was_there: bool = False


@dataclass
class Work:
    """Does what `act` does; `begun` is set by each run. `seen`: what was run and discarded."""

    act: Callable[[Steps], None] = lambda _: None
    begun: threading.Event = field(default_factory=threading.Event)
    seen: list[tuple[str, str]] = field(default_factory=list)

    def run(self, ask: Ask, steps: Steps) -> Had:
        self.seen.append(("run", str(ask.repository)))
        self.begun.set()
        self.act(steps)
        return Had()

    def discard(self, ask: Ask) -> None:
        self.seen.append(("discard", str(ask.repository)))


@dataclass
class Held(Work):
    """Each run lasts until it is cancelled or let go."""

    gate: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.act = self.wait

    def wait(self, steps: Steps) -> None:
        steps.downloading(3, 10)
        while not self.gate.wait(0.01):
            if steps.cancelled():
                raise Transient("cannot import: it is no longer wanted")


@dataclass
class Heard:
    """What was told."""

    news: list[News] = field(default_factory=list)
    downloads: list[int] = field(default_factory=list)
    uploads: list[int] = field(default_factory=list)

    def happened(self, news: News) -> None:
        self.news.append(news)

    def downloaded(self, size_bytes: int) -> None:
        self.downloads.append(size_bytes)

    def uploaded(self, size_bytes: int) -> None:
        self.uploads.append(size_bytes)

    @property
    def kinds(self) -> list[type[News]]:
        return [type(news) for news in self.news]


@contextmanager
def opened(folder: Path, work: Work, heard: Heard | None = None) -> Iterator[Imports]:
    imports = Imports(JobStore(folder), work, heard or Heard(), now=lambda: f"{next(_CLOCK):09}")
    imports.open()
    try:
        yield imports
    finally:
        imports.close()


def ended(imports: Imports, job: Job) -> Job:
    def look() -> bool:
        found = imports.get(job.id)
        return found is not None and found.has_ended

    wait_until(look, what="the job's end")
    found = imports.get(job.id)
    assert found is not None
    return found


def no_progress(_done: int, _total: int) -> None: ...


def never() -> bool:
    return False


def test_a_job_goes_from_pending_to_completed(tmp_path: Path) -> None:
    work = Held()
    with opened(tmp_path, work) as imports:
        job = imports.submit(ask())
        assert job.state is JobState.PENDING
        wait_until(lambda: state(imports, job) is JobState.DOWNLOADING, what="downloading")
        under_way = imports.get(job.id)
        assert under_way is not None
        assert (under_way.done_bytes, under_way.total_bytes) == (3, 10)
        work.gate.set()
        done = ended(imports, job)
    assert (done.state, done.digest, done.commit) == (JobState.COMPLETED, "d", "c")
    assert (done.done_bytes, done.total_bytes, done.error) == (10, 10, None)
    assert JobStore(tmp_path).load() == (done,)


def test_who_asks_for_the_same_joins(tmp_path: Path) -> None:
    work = Held()
    with opened(tmp_path, work) as imports:
        first = imports.submit(ask())
        assert work.begun.wait(10)
        again = imports.submit(ask())
        other = imports.submit(ask("org/m@v1"))
        assert (again.id, again.created_at) == (first.id, first.created_at)
        assert other.id != first.id
        work.gate.set()
        ended(imports, other)
    assert work.seen == [("run", "org/m"), ("run", "org/m@v1")]


def test_one_runs_at_a_time_in_the_order_of_asking(tmp_path: Path) -> None:
    work = Held()
    with opened(tmp_path, work) as imports:
        jobs = [imports.submit(ask(f"org/m{number}")) for number in range(3)]
        assert work.begun.wait(10)
        assert work.seen == [("run", "org/m0")]
        work.gate.set()
        for job in jobs:
            ended(imports, job)
    assert work.seen == [("run", "org/m0"), ("run", "org/m1"), ("run", "org/m2")]


def test_a_running_job_is_cancelled_and_leaves_nothing(tmp_path: Path) -> None:
    work = Held()
    with opened(tmp_path, work) as imports:
        job = imports.submit(ask())
        assert work.begun.wait(10)

        removed = imports.remove(job.id)

        assert removed is not None
        assert (removed.job.state, removed.forgotten) == (JobState.CANCELLED, False)
        assert removed.job.error == "cannot import org/m: it was cancelled"
        assert work.seen == [("run", "org/m"), ("discard", "org/m")]
        again = imports.remove(job.id)
        assert again is not None
        assert again.forgotten
        assert imports.jobs() == ()
        assert imports.remove(job.id) is None
    assert JobStore(tmp_path).load() == ()


def test_one_that_waits_is_cancelled_at_once(tmp_path: Path) -> None:
    work = Held()
    with opened(tmp_path, work) as imports:
        first = imports.submit(ask("org/first"))
        waiting = imports.submit(ask("org/second"))
        assert work.begun.wait(10)
        removed = imports.remove(waiting.id)
        assert removed is not None
        assert removed.job.state is JobState.CANCELLED
        work.gate.set()
        ended(imports, first)
    assert ("run", "org/second") not in work.seen


def test_a_failure_keeps_what_it_has_until_it_is_forgotten(tmp_path: Path) -> None:
    def fail(_: Steps) -> None:
        raise Transient("cannot import org/m: it is gated")

    work = Work(fail)
    with opened(tmp_path, work) as imports:
        job = ended(imports, imports.submit(ask()))
        assert (job.state, job.error) == (JobState.ERROR, "cannot import org/m: it is gated")
        assert work.seen == [("run", "org/m")]
        work.act = lambda _: None
        assert ended(imports, imports.submit(ask())).state is JobState.COMPLETED


def test_a_bug_ends_one_job_and_no_other(tmp_path: Path) -> None:
    def fail(_: Steps) -> None:
        raise ZeroDivisionError("oh")

    work = Work(fail)
    with opened(tmp_path, work) as imports:
        job = ended(imports, imports.submit(ask()))
        assert job.error == "cannot import org/m: ZeroDivisionError('oh')"
        work.act = lambda _: None
        assert ended(imports, imports.submit(ask("org/n"))).state is JobState.COMPLETED


def test_a_restart_goes_on_with_what_had_not_ended(tmp_path: Path) -> None:
    work = Held()
    with opened(tmp_path, work) as imports:
        first = imports.submit(ask("org/first"))
        second = imports.submit(ask("org/second"))
        assert work.begun.wait(10)
    assert ("discard", "org/first") not in work.seen
    left = JobStore(tmp_path).load()
    assert [job.state for job in left] == [JobState.DOWNLOADING, JobState.PENDING]

    later = Work()
    with opened(tmp_path, later) as imports:
        assert ended(imports, first).state is JobState.COMPLETED
        assert ended(imports, second).state is JobState.COMPLETED
    assert later.seen == [("run", "org/first"), ("run", "org/second")]


@pytest.mark.parametrize("content", [b"", b"{", b'{"id": "x"}', b"[]"])
def test_a_file_that_is_no_job_is_left_alone(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.json").write_bytes(content)
    with opened(tmp_path, Work()) as imports:
        assert imports.jobs() == ()
    assert (tmp_path / "x.json").read_bytes() == content


def test_the_oldest_that_have_ended_are_forgotten(tmp_path: Path) -> None:
    with opened(tmp_path, Work()) as imports:
        for number in range(KEPT + 3):
            ended(imports, imports.submit(ask(f"org/m{number}")))
        imports.submit(ask("org/one-more"))
        names = {job.repository for job in imports.jobs()}
    assert f"org/m{KEPT + 2}" in names
    assert "org/m0" not in names
    assert len(names) <= KEPT + 1
    assert len(JobStore(tmp_path).load()) == len(names)


def test_a_waiting_fetch_sees_the_progress_and_the_end(tmp_path: Path) -> None:
    work = Held()
    seen: list[tuple[int, int]] = []

    def progressed(done: int, total: int) -> None:
        seen.append((done, total))
        if done:
            work.gate.set()

    with opened(tmp_path, work) as imports:
        imports.bring(ask(), on_progress=progressed, cancelled=never)
    assert (3, 10) in seen


def test_two_fetches_wait_for_one_import(tmp_path: Path) -> None:
    work = Held()
    both = threading.Barrier(2)  # each has joined the import once it is told of its progress
    met: set[int] = set()

    def meet(_done: int, _total: int) -> None:
        if (me := threading.get_ident()) not in met:
            met.add(me)
            both.wait(10)
            work.gate.set()

    with opened(tmp_path, work) as imports, ThreadPoolExecutor(2) as pool:
        waiting = [
            pool.submit(imports.bring, ask(), on_progress=meet, cancelled=never) for _ in range(2)
        ]
        for each in waiting:
            each.result(10)
    assert work.seen == [("run", "org/m")]


@pytest.mark.parametrize("kind", [Transient, Rejected])
def test_the_kind_of_a_failure_reaches_who_waits(
    tmp_path: Path, kind: type[Transient] | type[Rejected]
) -> None:
    def fail(_: Steps) -> None:
        raise kind("cannot import org/m: so it is")

    with (
        opened(tmp_path, Work(fail)) as imports,
        pytest.raises(kind, match=r"cannot import org/m: so it is"),
    ):
        imports.bring(ask(), on_progress=no_progress, cancelled=never)


def test_a_fetch_that_is_given_up_leaves_the_import(tmp_path: Path) -> None:
    """gpustack#3853: stall, delete, start over, for ever."""
    work = Held()
    with opened(tmp_path, work) as imports:
        with pytest.raises(Transient, match=r"nobody waits for it any more"):
            imports.bring(ask(), on_progress=no_progress, cancelled=work.begun.is_set)
        work.gate.set()
        (job,) = imports.jobs()
        assert ended(imports, job).state is JobState.COMPLETED


def test_a_fetch_is_told_that_the_agent_ends(tmp_path: Path) -> None:
    work = Held()
    with ThreadPoolExecutor(1) as pool:
        with opened(tmp_path, work) as imports:
            waiting = pool.submit(imports.bring, ask(), on_progress=no_progress, cancelled=never)
            assert work.begun.wait(10)
        with pytest.raises(Transient, match=r"nobody waits"):
            waiting.result(10)


def test_each_start_and_each_end_is_told_once(tmp_path: Path) -> None:
    heard, work = Heard(), Held()
    with opened(tmp_path, work, heard) as imports:
        running, waiting = imports.submit(ask("org/m@v1")), imports.submit(ask("org/n"))
        assert work.begun.wait(10)
        imports.submit(ask("org/m@v1"))  # joins
        wait_until(lambda: state(imports, running) is JobState.DOWNLOADING, what="downloading")
        imports.remove(waiting.id)
        imports.remove(running.id)
        imports.remove(running.id)  # forgets it
        work.gate.set()
        ended(imports, imports.submit(ask("org/n")))

    assert heard.kinds == [
        ImportStarted,
        ImportCancelled,
        ImportCancelled,
        ImportStarted,
        ImportCompleted,
    ]
    assert heard.news[0].reason == "org/m@v1 is imported to huggingface/org_m@v1"
    first, second = heard.news[1:3]
    assert isinstance(first, ImportCancelled)
    assert (first.during, first.seconds) == (JobState.PENDING, None)
    assert isinstance(second, ImportCancelled)
    assert (second.during, second.job.done_bytes) == (JobState.DOWNLOADING, 3)
    assert heard.news[-1].reason == "the hub has org/n at huggingface/org_n"


def test_a_failure_is_told_with_its_reason_and_a_restart_is_none(tmp_path: Path) -> None:
    def fail(_: Steps) -> None:
        raise Transient("cannot import org/m: it is gated")

    heard = Heard()
    with opened(tmp_path, Work(fail), heard) as imports:
        ended(imports, imports.submit(ask()))
    assert heard.kinds == [ImportStarted, ImportFailed]
    assert heard.news[1].reason == "cannot import org/m: it is gated"

    work, cut_short = Held(), Heard()
    with opened(tmp_path, work, cut_short) as imports:
        imports.submit(ask())
        assert work.begun.wait(10)
    assert cut_short.kinds == [ImportStarted]


def test_only_bytes_that_moved_are_counted(tmp_path: Path) -> None:
    """gpustack#312: what was there before, and what had to be fetched again."""

    def act(steps: Steps) -> None:
        for done in (40, 60, 0, 100):
            steps.downloading(done, 100)
        for done in (0, 0, 70, 100):
            steps.uploading(done, 100)

    heard = Heard()
    with opened(tmp_path, Work(act), heard) as imports:
        ended(imports, imports.submit(ask()))
        assert {each: imports.count(each) for each in JobState if imports.count(each)} == {
            JobState.COMPLETED: 1
        }
    assert heard.downloads == [0, 20, 0, 100]
    assert heard.uploads == [0, 0, 70, 30]


def state(imports: Imports, job: Job) -> JobState | None:
    found = imports.get(job.id)
    return None if found is None else found.state
