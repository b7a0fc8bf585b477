"""What is known of each model beyond the life of one agent, on disk.

<data-dir>/history/<model>.json    0600

A file that cannot be read is left where it is until there is something newer to say; then it is put
aside, as <model>.json.unread. One that somebody removes or changes while the agent runs is written
anew.
"""

import contextlib
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Annotated, TypeVar

import msgspec

from reconciler.apply.kept_spec import decode_spec, encode_spec
from reconciler.atomic_file import PARTIAL, cause_and_cure
from reconciler.errors import Transient
from reconciler.own_files import FilesKept, Look, OwnFile, OwnFiles, look_at
from reconciler.plan.durations import UNTIMED, Durations, FetchTime, LoadTime, StopTime
from reconciler.plan.ids import FilesDigest, GpuUuid, Instance, ModelName, SpecHash
from reconciler.plan.observed import Failure
from reconciler.plan.revert import LastGood
from reconciler.plan.spec_hash import spec_hash

VERSION = 1
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Circumstances:
    """What a block depends on. `builds`: the engines that could have run it; None: not known.
    `gpus`: those of the node, by identity and name, of a model on GPUs. `terms`: a mark of what was
    asked of a load, and how long it might take; None: not known."""

    boot_id: str
    backend: str = "auto"
    engine: str | None = None
    builds: tuple[str, ...] | None = None
    gpus: tuple[tuple[str, str], ...] = ()
    drivers: tuple[str, ...] = ()
    terms: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A failure that lasts beyond the agent, and under which circumstances it came. `at`: when, by
    the wall, for the moments of an agent's own clock mean nothing to the next; None: not known."""

    failure: Failure
    circumstances: Circumstances
    at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Of one model. `loaded`: the instances that were loaded here, the newest last. `restarts`: how
    often, by cause."""

    blocks: tuple[Block, ...] = ()
    loaded: tuple[Instance, ...] = ()
    last_good: LastGood | None = None
    durations: Durations = UNTIMED
    restarts: tuple[tuple[str, int], ...] = ()


class _Block(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Additions must be optional: the release before reads these files, too."""

    spec_hash: SpecHash
    files_digest: FilesDigest | None
    during: str
    count: int
    reason: str
    boot_id: str
    earlier: tuple[str, ...] = ()
    permanent: bool = True
    ever_loaded: bool = False
    costly: bool = False
    costly_tries: int | None = None
    exited: bool = False
    backend: str = "auto"
    engine: str | None = None
    builds: tuple[str, ...] | None = None
    gpus: tuple[tuple[str, str], ...] = ()
    drivers: tuple[str, ...] = ()
    terms: str | None = None
    at: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _LastGood(msgspec.Struct, frozen=True, kw_only=True):
    spec: msgspec.Raw
    files_digest: FilesDigest
    gpus: tuple[GpuUuid, ...]


_Seconds = Annotated[float, msgspec.Meta(ge=0)]


class _Load(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    backend: str
    source: str
    spec_hash: SpecHash
    seconds: _Seconds
    file: str | None = None
    after_fetch: bool = False
    waited_seconds: _Seconds = 0.0


class _Fetch(msgspec.Struct, frozen=True, kw_only=True):
    size_bytes: Annotated[int, msgspec.Meta(ge=0)]
    seconds: _Seconds


class _Stop(msgspec.Struct, frozen=True, kw_only=True):
    drain_seconds: _Seconds
    seconds: _Seconds


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    model: ModelName
    blocks: tuple[_Block, ...]
    loaded: tuple[tuple[SpecHash, FilesDigest], ...]
    last_good: _LastGood | None
    loads: tuple[_Load, ...] = ()
    stops: tuple[_Stop, ...] = ()
    fetches: tuple[_Fetch, ...] = ()
    restarts: dict[str, Annotated[int, msgspec.Meta(ge=0)]] = {}


class _Version(msgspec.Struct):
    version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Unread:
    """A file that is not to be lost. `look`: when it was read last; empty: it could not be looked
    at. `problem`: None: somebody has mended it since."""

    problem: str | None
    look: Look


class Histories:
    """The folder of them. Any thread may ask."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._busy = threading.Lock()
        self._own = OwnFiles("a restart would not know what is blocked and last good")
        self._unread: dict[Path, _Unread] = {}
        self._put_away: list[str] = []

    def read(self, *, at: float) -> tuple[Mapping[ModelName, History], tuple[str, ...]]:
        """All that can be read, and what is wrong with each that cannot. Never raises.

        `at`: from when on failures count, on the clock of the agent.
        """
        found: dict[ModelName, History] = {}
        problems = []
        for path in self._files():
            look = _look(path)
            try:
                file = OwnFile.read(path)
                model, history = _decode(path, file.content, at)
            except (OSError, ValueError, RecursionError) as exc:
                problems.append(problem := _cannot_read(path, exc))
                self._unread[path] = _Unread(problem=problem, look=look)
            else:
                found[model] = history
                self._own.take(file)
        return found, tuple(problems)

    def keep(self) -> FilesKept:
        """Write anew what somebody removed or changed, and tell what cannot be read or written."""
        with self._busy:
            for path in tuple(self._unread):
                self._look_again(path)
            kept = self._own.keep()
            away, self._put_away = self._put_away, []
            unread = [each.problem for each in self._unread.values() if each.problem is not None]
        return FilesKept(problems=(*unread, *kept.problems), rewritten=(*away, *kept.rewritten))

    def write(self, model: ModelName, history: History) -> None:
        """Whole or not at all, and on the disk when it returns. Raises Transient."""
        path = self._folder / f"{model}.json"
        try:
            with self._busy, self._put_aside(path):
                self._own.write(path, _encode(model, history))
        except OSError as exc:
            why = cause_and_cure(exc, self._folder)
            raise Transient(f"cannot write {path}: {why}") from exc

    def remove(self, model: ModelName) -> None:
        """Of a model that is gone; one that cannot be read stays. Raises Transient."""
        path = self._folder / f"{model}.json"
        try:
            with self._busy:
                if path not in self._unread:
                    self._own.remove(path)
        except OSError as exc:
            why = cause_and_cure(exc, self._folder)
            raise Transient(f"cannot remove {path}: {why}") from exc

    def _files(self) -> list[Path]:
        for partial in self._folder.glob(f"*{PARTIAL}"):
            with contextlib.suppress(OSError):
                partial.unlink()
        return sorted(self._folder.glob("*.json"))

    @contextlib.contextmanager
    def _put_aside(self, path: Path) -> Iterator[None]:
        """One that cannot be read; it is back if nothing newer comes to be."""
        if path in self._unread:
            self._look_again(path)
        unread = self._unread.get(path)
        if unread is None:
            yield
            return
        aside = path.with_suffix(".json.unread")
        path.replace(aside)
        try:
            yield
        except OSError:
            aside.replace(path)
            raise
        del self._unread[path]
        why = unread.problem or f"{path} was mended after this agent had started"
        self._put_away.append(f"{why}: as {aside}, and {path} is written anew")

    def _look_again(self, path: Path) -> None:
        """Somebody may have taken it away or mended it; what is in it counts at the next start."""
        before, look = self._unread[path], _look(path)
        if look == before.look and look:
            return
        problem = None
        try:
            _decode(path, OwnFile.read(path).content, 0.0)
        except FileNotFoundError:
            del self._unread[path]
            return
        except (OSError, ValueError, RecursionError) as exc:
            problem = _cannot_read(path, exc)
        self._unread[path] = replace(before, problem=problem, look=look)


def _look(path: Path) -> Look:
    try:
        return look_at(path)
    except OSError:
        return ()


def _cannot_read(path: Path, exc: Exception) -> str:
    return (
        f"cannot read {path}: {exc}; what was blocked and last good of model {path.stem} is not "
        "known, and the file is kept"
    )


def _encode(model: ModelName, history: History) -> bytes:
    good = history.last_good
    written = _File(
        version=VERSION,
        model=model,
        blocks=tuple(map(_written, history.blocks)),
        loaded=tuple((each.spec_hash, each.files_digest) for each in history.loaded),
        last_good=_LastGood(
            spec=msgspec.Raw(encode_spec(good.spec)),
            files_digest=good.files_digest,
            gpus=good.gpus,
        )
        if good is not None
        else None,
        loads=_told(history.durations.loads, tuple[_Load, ...]),
        stops=_told(history.durations.stops, tuple[_Stop, ...]),
        fetches=_told(history.durations.fetches, tuple[_Fetch, ...]),
        restarts=dict(history.restarts),
    )
    return msgspec.json.format(msgspec.json.encode(written), indent=1) + b"\n"


def _told(times: object, kind: type[T]) -> T:
    return msgspec.convert(times, kind, from_attributes=True)


def _written(block: Block) -> _Block:
    failure, there = block.failure, block.circumstances
    return _Block(
        spec_hash=failure.spec_hash,
        files_digest=failure.files_digest,
        during=failure.during,
        count=failure.count,
        reason=failure.reason,
        earlier=failure.earlier,
        permanent=failure.permanent,
        ever_loaded=failure.ever_loaded,
        costly=failure.costly,
        costly_tries=failure.costly_tries if failure.costly else None,
        exited=failure.exited,
        boot_id=there.boot_id,
        backend=there.backend,
        engine=there.engine,
        builds=there.builds,
        gpus=there.gpus,
        drivers=there.drivers,
        terms=there.terms,
        at=block.at,
    )


def _decode(path: Path, content: bytes, at: float) -> tuple[ModelName, History]:
    version = msgspec.json.decode(content, type=_Version).version
    if version != VERSION:
        raise ValueError(f"it has version {version}, this agent knows {VERSION}")
    file = msgspec.json.decode(content, type=_File)
    if path.name != f"{file.model}.json":
        raise ValueError(f"it speaks of model {file.model}")
    return file.model, History(
        blocks=tuple(_read(block, at) for block in file.blocks),
        loaded=tuple(Instance(spec_hash=a, files_digest=b) for a, b in file.loaded),
        last_good=_good(file.last_good) if file.last_good is not None else None,
        durations=_durations(file),
        restarts=tuple(sorted(file.restarts.items())),
    )


def _durations(file: _File) -> Durations:
    return Durations(
        loads=tuple(LoadTime(**msgspec.structs.asdict(each)) for each in file.loads),
        fetches=tuple(FetchTime(**msgspec.structs.asdict(each)) for each in file.fetches),
        stops=tuple(StopTime(**msgspec.structs.asdict(each)) for each in file.stops),
    )


def _read(block: _Block, at: float) -> Block:
    return Block(
        failure=Failure(
            spec_hash=block.spec_hash,
            files_digest=block.files_digest,
            at=at,
            count=block.count,
            reason=block.reason,
            during=block.during,
            permanent=block.permanent,
            ever_loaded=block.ever_loaded,
            costly=block.costly,
            costly_tries=_costly_tries(block),
            exited=block.exited,
            earlier=block.earlier,
        ),
        circumstances=Circumstances(
            boot_id=block.boot_id,
            backend=block.backend,
            engine=block.engine,
            builds=block.builds,
            gpus=block.gpus,
            drivers=block.drivers,
            terms=block.terms,
        ),
        at=block.at,
    )


def _costly_tries(block: _Block) -> int:
    """Releases before counted every failure of the row."""
    if block.costly_tries is not None:
        return block.costly_tries
    return block.count if block.costly else 0


def _good(written: _LastGood) -> LastGood:
    """A newer version of the hash is reckoned from the spec (R4)."""
    spec = decode_spec(written.spec)
    return LastGood(
        spec=spec,
        spec_hash=spec_hash(spec),
        files_digest=written.files_digest,
        gpus=written.gpus,
    )
