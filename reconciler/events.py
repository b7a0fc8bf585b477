"""What happened on this node, as a bounded list of events that can be read and followed.

Each event is logged once, here, where it becomes real; the log and `/api/management/events` tell
the same story.
"""

import asyncio
import re
import secrets
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

import structlog

from reconciler.errors import Rejected
from reconciler.plan.ids import ModelName, NodeName

_log = structlog.get_logger("xgen.events")

KEPT = 1000
"""Events in memory; older ones are in the log only."""
_REASON_CHARACTERS = 2000
_WORD = re.compile(r"(?<!^)(?=[A-Z])")

Scalar = str | int | float | bool | None


class EventKind(StrEnum):
    """What happened, in the past tense. docs/management.md says when, and what `data` holds."""

    AGENT_STARTED = "AgentStarted"
    AGENT_ENDING = "AgentEnding"
    MANIFEST_TAKEN = "ManifestTaken"
    MANIFEST_REFUSED = "ManifestRefused"
    REVISION_WAITS = "RevisionWaits"
    SOURCE_UNREADABLE = "SourceUnreadable"
    MODEL_STATE_CHANGED = "ModelStateChanged"
    MODEL_WAIT_CHANGED = "ModelWaitChanged"
    MODEL_GONE = "ModelGone"
    TARGET_CHANGED = "TargetChanged"
    NODE_WAIT_CHANGED = "NodeWaitChanged"
    ACTION_BEGUN = "ActionBegun"
    ACTION_REFUSED = "ActionRefused"
    FILES_FETCHED = "FilesFetched"
    FILES_EVICTED = "FilesEvicted"
    FILE_ROTTEN = "FileRotten"
    FILE_DOUBTED = "FileDoubted"
    PUSH_NOTICED = "PushNoticed"
    PUSHES_UNSEEN = "PushesUnseen"
    IMPORT_STARTED = "ImportStarted"
    IMPORT_COMPLETED = "ImportCompleted"
    IMPORT_FAILED = "ImportFailed"
    IMPORT_CANCELLED = "ImportCancelled"
    BACKEND_STARTED = "BackendStarted"
    BACKEND_WARNED = "BackendWarned"
    BACKEND_ADOPTED = "BackendAdopted"
    BACKEND_LOST = "BackendLost"
    BACKEND_LOADED = "BackendLoaded"
    BACKEND_HUNG = "BackendHung"
    BACKEND_EXITED = "BackendExited"
    BACKEND_LEFT = "BackendLeft"
    RECORD_REWRITTEN = "RecordRewritten"
    EFFECT_FAILED = "EffectFailed"
    CRASH_LOOP = "CrashLoop"
    MODEL_REVERTED = "ModelReverted"
    REVERT_ENDED = "RevertEnded"
    ENGINE_CHANGED = "EngineChanged"
    ENGINE_LOST = "EngineLost"
    GPUS_CHANGED = "GpusChanged"
    DRIFT_FOUND = "DriftFound"
    DRIFT_ENDED = "DriftEnded"
    PEER_FOUND = "PeerFound"
    PEER_LOST = "PeerLost"
    PEER_GONE = "PeerGone"
    TICK_FAILED = "TickFailed"
    COMMAND_RECEIVED = "CommandReceived"
    SUSPENSION_ENDED = "SuspensionEnded"
    FAILURE_FORGIVEN = "FailureForgiven"


class Level(StrEnum):
    """`warning`: a person may have to act; `error`: something was refused or broke."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """`seq` counts from 1 in one run of the agent. `time`: RFC 3339, UTC. `model` None: the node.

    `reason`: a sentence for an operator (R8). `data`: a few figures, by kind.
    """

    seq: int
    time: str
    kind: EventKind
    level: Level
    node: NodeName
    model: ModelName | None
    reason: str
    data: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """Some events, oldest first. `missed`: those between the cursor and them that are gone.

    `next`: the cursor that goes on after them.
    """

    events: tuple[Event, ...]
    missed: int
    next: int


class Journal:
    """The last events. Recorded by the agent's own tasks, on one event loop.

    Readers hold a cursor each, nothing more: one that is slow misses events and is told how many.
    """

    def __init__(self, *, node: NodeName, now: Callable[[], str], kept: int = KEPT) -> None:
        self.run = secrets.token_hex(4)
        """This run of the agent; `seq` starts anew with each."""
        self._node = node
        self._now = now
        self._events: deque[Event] = deque(maxlen=kept)
        self._recorded = asyncio.Event()

    @property
    def last(self) -> int:
        """The newest event's `seq`; 0: there is none yet."""
        return self._events[-1].seq if self._events else 0

    def record(
        self,
        kind: EventKind,
        reason: str,
        *,
        model: ModelName | None = None,
        level: Level = Level.INFO,
        **data: Scalar,
    ) -> None:
        """`data`: what is None is left out."""
        event = Event(
            seq=self.last + 1,
            time=self._now(),
            kind=kind,
            level=level,
            node=self._node,
            model=model,
            reason=_shortened(reason),
            data={key: value for key, value in data.items() if value is not None},
        )
        self._events.append(event)
        _write(event)
        self._recorded.set()
        self._recorded = asyncio.Event()

    def cursor(self, text: str | None) -> int:
        """The cursor that a client names: `SEQ`, or `RUN:SEQ`. One of another run means 0.

        Raises Rejected.
        """
        if not text:
            return 0
        run, _, number = text.rpartition(":")
        if not (number.isascii() and number.isdigit()):
            raise Rejected(f"cannot go on after event {text[:50]!r}: it is not SEQ or RUN:SEQ")
        seq = int(number)
        return seq if run in ("", self.run) and seq <= self.last else 0

    def after(self, cursor: int, *, model: str | None = None) -> Page:
        """The events after a cursor, of one model where that is named."""
        oldest = self._events[0].seq if self._events else 1
        return Page(
            events=tuple(_of(model, (e for e in self._events if e.seq > cursor))),
            missed=max(0, oldest - cursor - 1) if cursor else 0,
            next=self.last,
        )

    async def newer_than(self, cursor: int) -> None:
        """Return once there is an event after the cursor."""
        while self.last <= cursor:
            await self._recorded.wait()


def _of(model: str | None, events: Iterable[Event]) -> Iterable[Event]:
    return (event for event in events if model is None or event.model == model)


def _shortened(reason: str) -> str:
    if len(reason) <= _REASON_CHARACTERS:
        return reason
    return reason[: _REASON_CHARACTERS - 1] + "…"


def _write(event: Event) -> None:
    fields = dict(event.data)
    if event.model is not None:
        fields["model"] = event.model
    words = _WORD.sub(" ", event.kind).lower()
    match event.level:
        case Level.INFO:
            _log.info(words, reason=event.reason, **fields)
        case Level.WARNING:
            _log.warning(words, reason=event.reason, **fields)
        case Level.ERROR:
            _log.error(words, reason=event.reason, **fields)
