"""The imports of one node: one at a time, each of them once, going on after a restart.

Threads, because all of the work blocks; a condition guards what they share. An import belongs to
the node, not to who asked: it goes on when a model leaves the manifest, until it is cancelled.
"""

import contextvars
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec
import structlog

from reconciler.errors import Rejected, Transient, XgenError
from reconciler.jobs.job import Ask, Job, JobState, new_job
from reconciler.jobs.news import (
    ImportCancelled,
    ImportCompleted,
    ImportFailed,
    ImportStarted,
    News,
)
from reconciler.jobs.pace import Pace
from reconciler.jobs.store import JobStore

_log = structlog.get_logger("xgen.jobs")

KEPT = 100
"""Of those that have ended; the oldest are forgotten."""
END_SECONDS = 5.0
"""For a cancelled import to end; its child is killed at once, but a part may be on its way up."""
_LOOK_SECONDS = 0.2
_LEAVE_SECONDS = 2.0


class Result(Protocol):
    """What the hub has now. `digest`, `commit`: None where they are not known."""

    @property
    def digest(self) -> str | None: ...
    @property
    def commit(self) -> str | None: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def was_there(self) -> bool: ...


class Work(Protocol):
    """Blocking, for threads."""

    def run(self, ask: Ask, steps: "Steps") -> Result:
        """Import it. Raises XgenError; Transient when `steps.cancelled` says so."""

    def discard(self, ask: Ask) -> None:
        """Remove what an import that has ended left on disk."""


class Listener(Protocol):
    """Told by the imports' own threads: it must be quick, and not ask back."""

    def happened(self, news: News) -> None: ...

    def downloaded(self, size_bytes: int) -> None:
        """So many bytes have come; what comes twice counts twice."""

    def uploaded(self, size_bytes: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Removed:
    """`forgotten`: it had ended before, and is not listed any more. Else it was cancelled."""

    job: Job
    forgotten: bool


class Imports:
    """`now`: the time, RFC 3339. Methods are for any thread, and short but for `remove` and
    `bring`."""

    def __init__(
        self, store: JobStore, work: Work, listener: Listener, *, now: Callable[[], str]
    ) -> None:
        self._store = store
        self._work = work
        self.listener = listener
        self._now = now
        self._changed = threading.Condition()
        self._jobs: dict[str, Job] = {}
        self._failures: dict[str, XgenError] = {}
        self._cancelled: set[str] = set()
        self._running: str | None = None
        self._began = 0.0
        self._ending = False
        in_context = contextvars.copy_context().run  # the node's name in the log
        self._thread = threading.Thread(
            target=in_context, args=(self._run,), name="imports", daemon=True
        )

    def open(self) -> None:
        """Take up what an earlier agent has left. Raises Transient."""
        for job in self._store.load():
            self._jobs[job.id] = job if job.has_ended else _again(job)
        self._thread.start()

    def close(self) -> None:
        """End what is under way, for the next start to go on with."""
        with self._changed:
            self._ending = True
            self._changed.notify_all()
        self._thread.join(_LEAVE_SECONDS)

    def jobs(self) -> tuple[Job, ...]:
        """The newest first."""
        with self._changed:
            every = list(self._jobs.values())
        return tuple(sorted(every, key=lambda job: job.created_at, reverse=True))

    def count(self, state: JobState) -> int:
        with self._changed:
            return sum(job.state is state for job in self._jobs.values())

    def get(self, job_id: str) -> Job | None:
        with self._changed:
            return self._jobs.get(job_id)

    def submit(self, ask: Ask) -> Job:
        """The job of that import; a new one, unless it is under way. Raises Transient."""
        with self._changed:
            known = self._jobs.get(ask.id)
            if known is not None and not known.has_ended:
                return known
            job = new_job(ask, now=self._now())
            self._put(job)
            self._failures.pop(job.id, None)
            self._forget_oldest()
        _log.info("import is asked for", job=job.id, repository=str(ask.repository))
        return job

    def remove(self, job_id: str) -> Removed | None:
        """Cancel it, or forget it where it has ended. None: there is no such job."""
        with self._changed:
            job = self._jobs.get(job_id)
            if job is None:
                return None
            if job.has_ended:
                self._forget(job)
                return Removed(job=job, forgotten=True)
            if job_id == self._running:
                self._cancelled.add(job_id)
                self._changed.wait_for(lambda: self._running != job_id, END_SECONDS)
            else:
                self._cancel(job, None)
            return Removed(job=self._jobs.get(job_id, job), forgotten=False)

    def bring(
        self,
        ask: Ask,
        *,
        on_progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        """Have it imported, and wait for that. Raises Transient or Rejected.

        `cancelled` ends the waiting, not the import.
        """
        job = self.submit(ask)
        while not job.has_ended:
            if cancelled() or self._ending:
                raise Transient(f"cannot import {ask.repository}: nobody waits for it any more")
            on_progress(job.done_bytes, job.total_bytes)
            with self._changed:
                self._changed.wait(_LOOK_SECONDS)
                job = self._jobs.get(job.id) or _forgotten(job)
        if job.state is not JobState.COMPLETED:
            raise self._failure(job)

    def _failure(self, job: Job) -> XgenError:
        known = self._failures.get(job.id)
        message = job.error or _cancelled(job)
        if isinstance(known, Rejected):
            return Rejected(message)
        wish = known.retry_after_seconds if isinstance(known, Transient) else None
        return Transient(message, retry_after_seconds=wish)

    def is_unwanted(self, job_id: str) -> bool:
        """Whether its work is to end."""
        return self._ending or job_id in self._cancelled

    def advance(self, job_id: str, state: JobState, **step: int | None) -> None:
        """Where its work is now. Raises Transient."""
        with self._changed:
            before = self._jobs[job_id]
            job = msgspec.structs.replace(before, state=state, **step)
            if state is before.state:
                self._show(job)
            else:
                self._put(job)

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._do(job)
            with self._changed:
                self._running = None
                self._changed.notify_all()

    def _next(self) -> Job | None:
        """The job whose turn it is; waits for one. None: the agent ends."""
        with self._changed:
            while not self._ending:
                waiting = [job for job in self._jobs.values() if not job.has_ended]
                if waiting:
                    job = min(waiting, key=lambda job: job.created_at)
                    self._running, self._began = job.id, time.monotonic()
                    self.listener.happened(ImportStarted(job=job))
                    return job
                self._changed.wait()
            return None

    def _do(self, job: Job) -> None:
        try:
            result = self._work.run(job.ask, Steps(self, job.id))
        except Exception as exc:  # noqa: BLE001  the thread's boundary: it goes on with the next
            self._failed(job.id, exc)
            return
        with self._changed:
            done = self._end(
                self._jobs[job.id],
                JobState.COMPLETED,
                commit=result.commit,
                digest=result.digest,
                was_there=result.was_there,
                done_bytes=result.size_bytes,
                total_bytes=result.size_bytes,
            )
            self.listener.happened(ImportCompleted(job=done, seconds=self._seconds()))

    def _seconds(self) -> float:
        return time.monotonic() - self._began

    def _failed(self, job_id: str, error: Exception) -> None:
        with self._changed:
            job = self._jobs[job_id]
            if job_id in self._cancelled:
                self._cancel(job, self._seconds())
            elif not self._ending:
                if not isinstance(error, XgenError):
                    _log.error("import failed unexpectedly", job=job_id, exc_info=error)
                    error = Transient(f"cannot import {job.source}: {error!r}")
                self._failures[job_id] = error
                ended = self._end(job, JobState.ERROR, error=str(error))
                self.listener.happened(
                    ImportFailed(job=ended, during=job.state, seconds=self._seconds())
                )

    def _cancel(self, job: Job, seconds: float | None) -> None:
        """With the condition held, and nobody at work on it."""
        self._work.discard(job.ask)
        ended = self._end(job, JobState.CANCELLED, error=_cancelled(job))
        self.listener.happened(ImportCancelled(job=ended, during=job.state, seconds=seconds))

    def _end(self, job: Job, state: JobState, **more: Any) -> Job:
        """With the condition held."""
        self._cancelled.discard(job.id)
        ended = msgspec.structs.replace(
            job, state=state, ended_at=self._now(), bytes_per_second=None, **more
        )
        try:
            self._put(ended)
        except Transient as exc:
            _log.warning("job is not saved", job=job.id, cause=str(exc))
            self._show(ended)
        return ended

    def _put(self, job: Job) -> None:
        self._store.save(job)
        self._show(job)

    def _show(self, job: Job) -> None:
        self._jobs[job.id] = job
        self._changed.notify_all()

    def _forget(self, job: Job) -> None:
        if job.state is not JobState.COMPLETED:
            self._work.discard(job.ask)
        self._store.remove(job.id)
        self._failures.pop(job.id, None)
        del self._jobs[job.id]

    def _forget_oldest(self) -> None:
        ended = [job for job in self._jobs.values() if job.has_ended]
        for job in sorted(ended, key=lambda job: job.ended_at or "")[:-KEPT]:
            self._forget(job)


class Steps:
    """How far one import is: what `Work` tells. `_before`: what was there in this state before."""

    def __init__(self, imports: Imports, job_id: str) -> None:
        self._imports = imports
        self._id = job_id
        self._state = JobState.PENDING
        self._pace = Pace()
        self._before = 0

    def downloading(self, done: int, total: int) -> None:
        came = self._at(JobState.DOWNLOADING, done, total)
        self._imports.listener.downloaded(came)

    def uploading(self, done: int, total: int) -> None:
        went = self._at(JobState.UPLOADING, done, total)
        self._imports.listener.uploaded(went)

    def cancelled(self) -> bool:
        return self._imports.is_unwanted(self._id)

    def _at(self, state: JobState, done: int, total: int) -> int:
        """How many bytes are new. Those that are there when a state begins are not."""
        if state is not self._state:
            self._state, self._before = state, done
            self._pace = Pace()
        moved = max(0, done - self._before)
        self._before = done
        if not done:
            self._pace = Pace()  # what went before (hashing, say) was no transfer
        self._imports.advance(
            self._id,
            state,
            done_bytes=done,
            total_bytes=total,
            bytes_per_second=self._pace.at(done, time.monotonic()),
        )
        return moved


def _again(job: Job) -> Job:
    return msgspec.structs.replace(
        job, state=JobState.PENDING, done_bytes=0, total_bytes=0, bytes_per_second=None
    )


def _cancelled(job: Job) -> str:
    return f"cannot import {job.source}: it was cancelled"


def _forgotten(job: Job) -> Job:
    return msgspec.structs.replace(job, state=JobState.CANCELLED, error=_cancelled(job))
