"""What the next agent is to know of those that live: kept on disk, whatever is done to the disk."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from reconciler.apply.held import Held
from reconciler.apply.record_watch import RecordWatch
from reconciler.apply.records import Records, SpawnRecord
from reconciler.apply.spawn import Order, Started, start
from reconciler.apply.traces import remove_traces
from reconciler.errors import Transient
from reconciler.own_files import FilesKept
from reconciler.plan.ids import ModelName

HoldFolder = Callable[[], str | None]
"""Lets the data folder be this agent's still; why it is not, as a sentence. Any thread may ask."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordRewritten:
    """Somebody had removed or changed a record, and it is there again. `model` None: a file that is
    of no process. `pid` None: of one whose first process is gone."""

    model: ModelName | None
    pid: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What a look came to. `problems`: what is not on disk, as sentences."""

    problems: tuple[str, ...] = ()
    rewritten: tuple[RecordRewritten, ...] = ()


class KeptFiles(Protocol):
    """What else the next agent is to know. `keep` is for any thread, and costs next to nothing
    where nothing was done to them."""

    def keep(self) -> FilesKept: ...


class Custody:
    """The records of what the backends hold, and other files. `start`, `keep` and `remove` are for
    a thread.

    `problems`: what is not on disk and the next agent needs to know, as sentences. `harmed`: called
    in the event loop, between `open` and `close`, when something may have been done to a record.
    """

    def __init__(
        self, records: Records, hold_folder: HoldFolder, harmed: Callable[[], None] = lambda: None
    ) -> None:
        self._records = records
        self._hold_folder = hold_folder
        self._watch = RecordWatch(records.folder, harmed)
        self._rewritten: tuple[RecordRewritten, ...] = ()
        self._files: tuple[KeptFiles, ...] = ()
        self.problems: tuple[str, ...] = ()

    def open(self) -> None:
        self._watch.open()

    def close(self) -> None:
        self._watch.close()

    def watch(self, *files: KeptFiles) -> None:
        """From now on these are kept, too."""
        self._files += files

    def take_up(self, kept: Kept) -> bool:
        """What a look came to; whether there is something new to tell."""
        news = bool(kept.rewritten) or kept.problems != self.problems
        self._rewritten += kept.rewritten
        self.problems = kept.problems
        return news

    def take_rewritten(self) -> tuple[RecordRewritten, ...]:
        """Since the last call; each is told once."""
        rewritten, self._rewritten = self._rewritten, ()
        return rewritten

    def start(self, order: Order) -> Started:
        """As `spawn.start`; nothing is started whose record the next agent would not find."""
        if (why := self._hold_folder()) is not None:
            raise Transient(f"cannot start {order.model}: {why}")
        return start(order, self._records)

    def remove(self, record: SpawnRecord) -> str | None:
        """And its traces. Returns why it cannot be, as a sentence; None: nothing is left."""
        return remove_traces(record) or self._records.remove(record.nonce)

    def keep(self, watched: Sequence[Held]) -> Kept:
        """Note what has become of each, and write anew what has gone. Nothing that runs depends on
        it; what fails is tried again at the next look."""
        for held in watched:
            held.kin.record = _as_it_is(held)
        if (why := self._hold_folder()) is not None:
            return Kept(problems=(why,))
        problems, rewritten = [], []
        for held in watched:
            record = held.kin.record
            try:
                harm = self._records.keep(record)
            except Transient as exc:
                problems.append(
                    f"{_named(record)}: {exc}; the next agent would not know it as it is"
                )
            else:
                if harm is not None:
                    rewritten.append(self._news(record, harm))
        self._watch.renew()
        for files in self._files:
            kept = files.keep()
            problems += kept.problems
            rewritten += [
                RecordRewritten(model=None, pid=None, reason=each) for each in kept.rewritten
            ]
        return Kept(problems=tuple(problems), rewritten=tuple(rewritten))

    def _news(self, record: SpawnRecord, harm: str) -> RecordRewritten:
        path = self._records.path(record.nonce)
        return RecordRewritten(
            model=record.model,
            pid=record.pid,
            reason=f"{path}, the record of {_named(record)}: it {harm}, and is written anew; "
            "without it the next agent would not know its processes",
        )


def _as_it_is(held: Held) -> SpawnRecord:
    record, view = held.kin.record, held.view
    return held.kin.noted(
        loaded=record.loaded or (view is not None and view.loaded_at is not None),
        stopping=record.stopping or held.asked,
    )


def _named(record: SpawnRecord) -> str:
    return str(record.model) if record.pid is None else f"{record.model}, pid {record.pid}"
