"""From snapshots of the source to the desired state: rule R2, and what is kept on disk for it."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import structlog

from reconciler.errors import Transient
from reconciler.events import EventKind, Journal, Level
from reconciler.loop.rails import Rails, Runs, overlaid, waiting_for
from reconciler.manifest.problem import Problem
from reconciler.manifest.resolve import FileInput, Parses, Resolution, resolve
from reconciler.manifest.select import select
from reconciler.manifest.union import Manifest
from reconciler.plan.desired import Desired, WaitingRevision
from reconciler.plan.ids import NodeName
from reconciler.plan.suspension import Suspension
from reconciler.source.last_good import LastGood
from reconciler.source.snapshot import Snapshot
from reconciler.status import JUST_STARTED, Revision

_log = structlog.get_logger("xgen.source")

_TOLD_PROBLEMS = 5
"""Of a manifest in one event; the log, `/cluster` and `validate` have them all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Understanding:
    """What the newest snapshot came to.

    `desired` is None until something good was read once. `problems` are the newest revision's;
    `kept` names the files that count as they were. `notices`: how the source has to be
    read. `not_kept`: why the last good version on disk is not what is in force.
    """

    desired: Desired | None = None
    revision: Revision = field(default_factory=Revision)
    location: str = ""
    source_error: str | None = None
    problems: tuple[Problem, ...] = ()
    kept: tuple[str, ...] = ()
    whole: bool = False
    notices: tuple[str, ...] = ()
    not_kept: str | None = None
    note: str = ""
    """Of the newest revision: see `Snapshot`."""

    @property
    def waiting(self) -> WaitingRevision | None:
        """The newest revision, where it waits for a confirmation."""
        return self.desired.waiting if self.desired is not None else None

    @property
    def unknown_because(self) -> str | None:
        """Why nobody can say which models there are, with the node as subject; None: one can."""
        if self.desired is not None:
            return None
        if self.source_error is None and not self.location:
            return JUST_STARTED
        return "has no manifest yet: no valid one was read so far"


class Intent:
    """Holds the newest snapshot and what is in force. `offer` only notes and wakes (R1).

    `peers`: this node is one of a cluster.
    """

    def __init__(
        self,
        *,
        node: NodeName,
        last_good: LastGood,
        wake: Callable[[], None],
        journal: Journal,
        rails: Rails,
        peers: bool = False,
    ) -> None:
        self._node = node
        self._peers = peers
        self._rails = rails
        self._journal = journal
        self._last_good = last_good
        self._wake = wake
        self._newest: Snapshot | None = None
        self._seen: Snapshot | None = None
        self._in_force: Mapping[str, bytes] = {}
        self._awaited: Mapping[str, bytes] | None = None
        self._written: Desired | None = None
        self._laid_over: tuple[Suspension, ...] = ()
        self._parses: Parses = {}
        self._notices: tuple[str, ...] = ()
        self._applied: str | None = None
        self._unsaved = False
        self._understanding = Understanding()

    @property
    def understanding(self) -> Understanding:
        return self._understanding

    @property
    def in_force(self) -> Mapping[str, bytes]:
        """The files that count, by name."""
        return self._in_force

    def in_effect(self) -> Desired | None:
        """What counts, also before the source was read: by what is kept, then. None: nobody
        knows."""
        if self._understanding.desired is not None:
            return self._understanding.desired
        before = self._before(self._parses)
        return overlaid(before, self._rails.suspensions) if before is not None else None

    @property
    def awaited(self) -> Mapping[str, bytes] | None:
        """Those of the revision that waits for a confirmation; None: none does."""
        return self._awaited

    async def open(self) -> None:
        """Read the last good version from the data folder; it is used if the source is bad."""
        kept = await asyncio.to_thread(self._last_good.load)
        if kept.error is not None:
            _log.warning("the last good manifest on disk is damaged", error=kept.error)
        self._in_force, self._applied = kept.files, kept.revision or None
        self._understanding = Understanding(
            revision=Revision(applied=kept.revision or None), not_kept=kept.error
        )

    def offer(self, snapshot: Snapshot, notices: tuple[str, ...] = ()) -> None:
        """Note a snapshot, and what an operator should know of how it was read."""
        self._newest = snapshot
        self._notices = notices
        self._wake()

    async def refresh(self, runs: Callable[[], Runs] = Runs) -> Understanding:
        """Take up the newest snapshot, if there is a new one, and what commands suspend. Parsing
        runs in a thread. `runs`: which models a revision may stop."""
        await self._take_up(runs)
        if self._rails.suspensions != self._laid_over:
            self._lay_over()
        return self._understanding

    def _lay_over(self) -> None:
        self._laid_over = self._rails.suspensions
        if self._written is not None:
            desired = overlaid(self._written, self._laid_over)
            self._understanding = replace(self._understanding, desired=desired)

    async def _take_up(self, runs: Callable[[], Runs]) -> None:
        snapshot = self._newest
        waiting = self._understanding.waiting
        released = waiting is not None and self._rails.confirmed == waiting.revision
        if snapshot is None or (snapshot is self._seen and not released):
            if self._unsaved:
                self._understanding = replace(self._understanding, not_kept=await self._save())
            if self._notices != self._understanding.notices:
                self._understanding = replace(self._understanding, notices=self._notices)
            return
        self._seen = snapshot
        resolution, desired = await asyncio.to_thread(self._interpret, snapshot, runs())
        waiting = desired.waiting if desired is not None else None
        applied = self._understanding.revision.applied
        if resolution.whole and waiting is None:
            applied = snapshot.revision
        self._parses = resolution.parses
        in_force = resolution.in_force if waiting is None else self._in_force
        if waiting is not None:
            await self._rails.wait(waiting)
        kept = (self._in_force, self._applied)
        if (in_force, applied) != kept or self._understanding.not_kept is not None:
            self._in_force, self._applied, self._unsaved = in_force, applied, True
        self._awaited = resolution.in_force if waiting is not None else None
        self._written, self._laid_over = desired, ()
        self._understanding = Understanding(
            desired=desired,
            revision=Revision(applied=applied, attempted=snapshot.revision or None),
            location=snapshot.location,
            source_error=snapshot.error,
            note=snapshot.note,
            problems=resolution.problems,
            kept=resolution.kept,
            whole=resolution.whole and waiting is None,
            notices=self._notices,
            not_kept=await self._save() if self._unsaved else self._understanding.not_kept,
        )
        if waiting is None and desired is not None:
            await self._rails.take_up()
        self._say(snapshot)

    async def _save(self) -> str | None:
        """Keep what is in force on disk; why it is not. It is tried again until it is."""
        try:
            await asyncio.to_thread(self._last_good.save, self._in_force, self._applied or "")
        except Transient as exc:
            if self._understanding.not_kept is None:
                _log.error("the manifest in force is not kept on disk", error=str(exc))
            return f"{exc}; a restart would use an older manifest if the source is away or bad"
        self._unsaved = False
        return None

    def _interpret(self, snapshot: Snapshot, runs: Runs) -> tuple[Resolution, Desired | None]:
        files = (
            None
            if snapshot.error is not None
            else [
                FileInput(name=file.name, content=file.content, error=file.error)
                for file in snapshot.files
            ]
        )
        resolution = resolve(files, self._in_force, parses=self._parses)
        if resolution.manifest is None:
            return resolution, None
        desired = self.select(resolution.manifest, revision=snapshot.revision)
        if resolution.in_force == self._in_force:
            return resolution, desired
        before = self._before(resolution.parses)
        waiting = self._rails.judge(desired, before, runs)
        if waiting is not None:
            desired = waiting_for(before, desired, waiting)
        return resolution, desired

    def _before(self, parses: Parses) -> Desired | None:
        """What is in force as yet; None: nothing is known to be."""
        manifest = resolve(None, self._in_force, parses=parses).manifest
        if manifest is None:
            return None
        return self.select(manifest, revision=self._applied or "")

    def select(self, manifest: Manifest, *, revision: str) -> Desired:
        """What a manifest wants of this node."""
        return select(manifest, node=self._node, revision=revision, peers=self._peers)

    def _say(self, snapshot: Snapshot) -> None:
        now = self._understanding
        if now.waiting is not None:
            self._journal.record(
                EventKind.REVISION_WAITS,
                now.waiting.reason,
                level=Level.WARNING,
                revision=now.waiting.revision,
                stops=len(now.waiting.stops),
                running=now.waiting.running,
            )
        if now.whole:
            models = len(now.desired.models) if now.desired else 0
            self._journal.record(
                EventKind.MANIFEST_TAKEN,
                f"{snapshot.location} was taken up whole",
                revision=snapshot.revision,
                models_here=models,
            )
            return
        if snapshot.error is not None:
            self._journal.record(
                EventKind.SOURCE_UNREADABLE,
                f"{snapshot.error}; what runs stays as it is",
                level=Level.WARNING,
            )
        for problem in now.problems:
            _log.error("manifest problem", problem=str(problem))
        if errors := [str(problem) for problem in now.problems if problem.is_error]:
            self._journal.record(
                EventKind.MANIFEST_REFUSED,
                f"{_listed(errors)}; what runs stays as it is",
                level=Level.ERROR,
                revision=snapshot.revision,
                errors=len(errors),
            )


def _listed(errors: list[str]) -> str:
    more = len(errors) - _TOLD_PROBLEMS
    told = "; ".join(errors[:_TOLD_PROBLEMS])
    return f"{told}; and {more} more" if more > 0 else told
