"""What is known of each model beyond the life of one agent, on disk.

<data-dir>/history/<model>.json    0600

A file that cannot be read is left where it is until there is something newer to say; then it is put
aside, as <model>.json.unread.
"""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Annotated

import msgspec

from reconciler.apply.kept_spec import decode_spec, encode_spec
from reconciler.apply.records import cause_and_cure, read_regular
from reconciler.atomic_file import PARTIAL, make_folder, replace_file
from reconciler.errors import Transient
from reconciler.plan.ids import FilesDigest, GpuUuid, Instance, ModelName, SpecHash
from reconciler.plan.observed import Failure
from reconciler.plan.revert import LastGood
from reconciler.plan.spec_hash import spec_hash

VERSION = 1


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
    """Of one model. `loaded`: the instances that were loaded here, the newest last."""

    blocks: tuple[Block, ...] = ()
    loaded: tuple[Instance, ...] = ()
    last_good: LastGood | None = None


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


class _File(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    model: ModelName
    blocks: tuple[_Block, ...]
    loaded: tuple[tuple[SpecHash, FilesDigest], ...]
    last_good: _LastGood | None


class _Version(msgspec.Struct):
    version: int


class Histories:
    """The folder of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._unread: set[Path] = set()

    def read(self, *, at: float) -> tuple[Mapping[ModelName, History], tuple[str, ...]]:
        """All that can be read, and what is wrong with each that cannot. Never raises.

        `at`: from when on failures count, on the clock of the agent.
        """
        found: dict[ModelName, History] = {}
        problems = []
        for path in self._files():
            try:
                model, history = _decode(path, at)
            except (OSError, ValueError, RecursionError) as exc:
                self._unread.add(path)
                problems.append(
                    f"cannot read {path}: {exc}; what was blocked and last good of model "
                    f"{path.stem} is not known, and the file is kept"
                )
            else:
                found[model] = history
        return found, tuple(problems)

    def write(self, model: ModelName, history: History) -> None:
        """Whole or not at all, and on the disk when it returns. Raises Transient."""
        path = self._folder / f"{model}.json"
        try:
            make_folder(self._folder, mode=0o700)
            with self._put_aside(path):
                replace_file(path, _encode(model, history))
        except OSError as exc:
            why = cause_and_cure(exc, self._folder)
            raise Transient(f"cannot write {path}: {why}") from exc

    def remove(self, model: ModelName) -> None:
        """Of a model that is gone; one that cannot be read stays. Raises Transient."""
        path = self._folder / f"{model}.json"
        if path in self._unread:
            return
        try:
            path.unlink(missing_ok=True)
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
        if path not in self._unread:
            yield
            return
        aside = path.with_suffix(".json.unread")
        path.replace(aside)
        try:
            yield
        except OSError:
            aside.replace(path)
            raise
        self._unread.discard(path)


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
    )
    return msgspec.json.format(msgspec.json.encode(written), indent=1) + b"\n"


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


def _decode(path: Path, at: float) -> tuple[ModelName, History]:
    content = read_regular(path)
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


def _good(written: _LastGood) -> LastGood:
    """A newer version of the hash is reckoned from the spec (R4)."""
    spec = decode_spec(written.spec)
    return LastGood(
        spec=spec,
        spec_hash=spec_hash(spec),
        files_digest=written.files_digest,
        gpus=written.gpus,
    )
