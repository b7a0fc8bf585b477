"""What came of each revision of the manifest: read from the status, level by level."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import structlog

from reconciler.apply.attempts import AttemptsFile
from reconciler.attempt import KEPT, Attempt, Outcome, Shortfall
from reconciler.condition import Condition, ConditionType, Reason
from reconciler.errors import Transient
from reconciler.events import EventKind, Journal, Level
from reconciler.loop.clock import Clock
from reconciler.loop.intent import Understanding
from reconciler.status import ModelStatus, Status

_log = structlog.get_logger("xgen.loop")
_TOLD = 20
"""Models and problems of one revision."""


_Gist = tuple[tuple[object, ...], ...]


class Revisions:
    """Kept by the loop alone; anybody may read `attempts`, the oldest first."""

    def __init__(self, file: AttemptsFile, journal: Journal, clock: Clock) -> None:
        self._file = file
        self._journal = journal
        self._clock = clock
        self._saved: _Gist = ()
        self._unwritten: str | None = None
        self.attempts: tuple[Attempt, ...] = ()

    async def open(self) -> None:
        """What the agent before this one knew."""
        self.attempts = await asyncio.to_thread(self._file.read)
        self._saved = _gist(self.attempts)
        if self._file.problem is not None:
            _log.warning("the history of revisions is damaged", error=self._file.problem)

    @property
    def problems(self) -> tuple[str, ...]:
        """What is not on disk, or could not be read, as sentences."""
        told = (self._file.problem, self._unwritten)
        return tuple(each for each in told if each is not None)

    async def see(self, status: Status, now: Understanding) -> bool:
        """Note what the status says of the newest revision; whether there is nothing to write any
        more, nor anything new to tell of that."""
        revision = now.revision.attempted
        if revision is not None and not status.draining:
            self._note(revision, status, now)
        if _gist(self.attempts) == self._saved:
            return True
        before = self.problems
        await self._save()
        return _gist(self.attempts) == self._saved and self.problems == before

    def _note(self, revision: str, status: Status, now: Understanding) -> None:
        moment = self._clock.wall(self._clock.monotonic())
        attempts = list(self.attempts)
        is_new = not attempts or attempts[-1].revision != revision
        if now.source_error is not None and not is_new:
            return  # it was looked at before the source was lost
        if is_new:
            if attempts:
                attempts[-1] = _superseded(attempts[-1], revision, moment)
            first = Attempt(
                revision=revision,
                seen_at=moment,
                outcome=Outcome.WAITING,
                reason="just seen",
                note=now.note,
            )
            attempts.append(first)
        attempts[-1] = judged(attempts[-1], status, now, moment)
        self.attempts = tuple(attempts[-KEPT:])

    async def _save(self) -> None:
        attempts = self.attempts
        try:
            told = await asyncio.to_thread(self._file.write, attempts)
        except Transient as exc:
            if self._unwritten is None:
                _log.warning("the history of revisions is not on disk", error=str(exc))
            self._unwritten = str(exc)
            return
        self._saved, self._unwritten = _gist(attempts), None
        if told is not None:
            self._journal.record(EventKind.RECORD_REWRITTEN, told, level=Level.WARNING)


def judged(attempt: Attempt, status: Status, now: Understanding, moment: str) -> Attempt:
    """By the conditions. What was applied once stays so: what fails later is no fault of it."""
    if attempt.outcome is Outcome.APPLIED:
        return attempt
    if now.source_error is not None:  # of this very commit: what it holds cannot be read
        return _settled(attempt, Outcome.REFUSED, now.source_error, moment)
    ready = _of(status.conditions, ConditionType.READY)
    if ready is None or ready.status == "Unknown":
        return attempt
    if ready.status == "True":
        return _settled(attempt, Outcome.APPLIED, ready.message, moment)
    if now.waiting is not None:
        said = now.waiting.reason
        return replace(attempt, outcome=Outcome.WAITING, reason=said, settled_at=None, seconds=None)
    if not now.whole:
        errors = [each for each in now.problems if each.is_error]
        of_files = [each for each in errors if each.place is not None]
        problems = [str(each) for each in of_files or errors]  # the rest says what comes of them
        said = f"{len(problems)} error{'' if len(problems) == 1 else 's'}"
        refused = replace(attempt, problems=tuple(problems[:_TOLD]))
        return _settled(refused, Outcome.REFUSED, f"{said}; what runs stays as it is", moment)
    short = [model for model in status.models if not _is_fine(model)]
    attempt = replace(attempt, models=_shortfalls(short))
    failing = [model for model in short if _has_failed(model)]
    if short and len(failing) == len(short):
        names = ", ".join(model.name for model in failing[:_TOLD])
        return _settled(attempt, Outcome.FAILED, f"not as wanted: {names}", moment)
    names = ", ".join(model.name for model in short[:_TOLD])
    reason = f"waits for {names}" if short else ready.message
    if ready.reason in (Reason.HELD, Reason.SUSPENDED):
        reason = f"held back: {ready.message}"
    return replace(attempt, outcome=Outcome.WAITING, reason=reason, settled_at=None, seconds=None)


def _gist(attempts: Sequence[Attempt]) -> _Gist:
    """What is worth a write: not each word of why something is waited for."""
    return tuple(
        (
            each.revision,
            each.outcome,
            each.settled_at,
            tuple(model.model for model in each.models),
            each.problems,
        )
        for each in attempts
    )


def _superseded(attempt: Attempt, by: str, moment: str) -> Attempt:
    """What had an outcome keeps it."""
    if attempt.outcome is not Outcome.WAITING:
        return attempt
    reason = f"{by[:12]} came before it was done ({attempt.reason})"
    return _settled(attempt, Outcome.SUPERSEDED, reason, moment)


def _settled(attempt: Attempt, outcome: Outcome, reason: str, moment: str) -> Attempt:
    if attempt.outcome is outcome:
        return replace(attempt, reason=reason)
    lasted = datetime.fromisoformat(moment) - datetime.fromisoformat(attempt.seen_at)
    return replace(
        attempt,
        outcome=outcome,
        reason=reason,
        settled_at=moment,
        seconds=max(round(lasted.total_seconds(), 3), 0.0),
        models=() if outcome is Outcome.APPLIED else attempt.models,
        problems=() if outcome is Outcome.APPLIED else attempt.problems,
    )


def _shortfalls(models: Sequence[ModelStatus]) -> tuple[Shortfall, ...]:
    told = [(model, _of(model.conditions, ConditionType.READY)) for model in models[:_TOLD]]
    return tuple(
        Shortfall(model=model.name, reason=ready.message)
        for model, ready in told
        if ready is not None
    )


def _has_failed(model: ModelStatus) -> bool:
    """Whether nothing is left to wait for but a further try."""
    stalled, degraded = (
        _of(model.conditions, kind) for kind in (ConditionType.STALLED, ConditionType.DEGRADED)
    )
    return any(each is not None and each.status == "True" for each in (stalled, degraded))


def _is_fine(model: ModelStatus) -> bool:
    ready = _of(model.conditions, ConditionType.READY)
    return ready is not None and (ready.status == "True" or ready.reason is Reason.DISABLED)


def _of(conditions: Sequence[Condition], kind: ConditionType) -> Condition | None:
    return next((each for each in conditions if each.type is kind), None)
