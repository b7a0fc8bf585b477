"""Brings a repository of Hugging Face into the hub, through a folder on this node.

    in the hub?  >  list  >  choose  >  room?  >  download  >  push  >  remove the folder

Nothing is asked of Hugging Face for what the hub has. A try that failed or was killed leaves its
folder, and the next one goes on with the bytes in it.
"""

import os
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from reconciler.errors import Rejected, Transient, XgenError
from reconciler.hub.catalog import Catalog, Facts
from reconciler.hub.huggingface_download import Listing, RemoteFile, Wanted, download
from reconciler.hub.huggingface_site import site_of
from reconciler.hub.local_files import LocalFile
from reconciler.hub.prefix_state import PrefixState, read_state
from reconciler.hub.push import Order, push
from reconciler.hub.staging import discard, staging
from reconciler.hub.writable import WritableHub
from reconciler.plan.repository import Repository

_GGUF = "gguf/"
_PROBE = ".xgen/probe"


class Steps(Protocol):
    """Told how far an import is, in bytes. `cancelled` is asked from several threads."""

    def downloading(self, done: int, total: int) -> None: ...
    def uploading(self, done: int, total: int) -> None: ...
    def cancelled(self) -> bool: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What makes a model of files: the cache's and the backends' part. All raise XgenError.

    `choose`: the paths of the model that is meant, out of all paths with their sizes.
    """

    choose: Callable[[Mapping[str, int]], Sequence[str]]
    check_names: Callable[[Iterable[str], str], None]
    describe: Callable[[Sequence[LocalFile]], Facts]


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportOrder:
    """`folder`: of this import alone. `environment`: HF_TOKEN, HF_ENDPOINT and the like.

    `refresh`: ask Hugging Face although the hub has the model. `pushed_at`: RFC 3339.
    `patience_seconds`: for another process that imports the same here; None: as long as it takes.
    """

    repository: Repository
    prefix: str
    folder: Path
    pushed_at: str
    judgement: Judgement = field(repr=False)
    environment: Mapping[str, str] = field(repr=False)
    refresh: bool = False
    patience_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Imported:
    """`digest`: of the catalog; None: the prefix has none. `commit`: None where it is not known.

    `was_there`: nothing was downloaded. `size_bytes`: of the model.
    """

    prefix: str
    digest: str | None
    commit: str | None
    size_bytes: int
    was_there: bool


class _Useless(Rejected):
    """What came is what is listed, and no node could use it: there is nothing to go on with."""


def import_model(hub: WritableHub, order: ImportOrder, steps: Steps) -> Imported:
    """Blocking. Raises Transient (also when cancelled) or Rejected."""
    state = _looked(hub, order)
    if (found := _found(order, state)) is not None:
        return found
    with staging(order.folder, order.patience_seconds, cancelled=steps.cancelled) as lock:
        state = _looked(hub, order)  # whoever held the folder may have imported it
        try:
            imported = _found(order, state) or _import(
                hub, order, steps, current=state.current, lock=lock
            )
        except XgenError as exc:
            if isinstance(exc, _Useless) or _wanted(order, steps).has_nothing:
                discard(order.folder)
            raise
        discard(order.folder)
    return imported


def _wanted(order: ImportOrder, steps: Steps) -> Wanted:
    return Wanted(
        repository=order.repository,
        folder=order.folder,
        environment=order.environment,
        cancelled=steps.cancelled,
    )


def _import(
    hub: WritableHub, order: ImportOrder, steps: Steps, *, current: Catalog | None, lock: int
) -> Imported:
    """With the staging folder held."""
    wanted = _wanted(order, steps)
    with download(wanted, keep_open=lock) as child:
        listing = child.listing()
        files = _chosen(order, listing)
        size = sum(file.size_bytes for file in files.values())
        if current is not None and _is_same(current, listing, files):
            return _from_catalog(order, current, size)
        _check_room(wanted, files)
        _check_writable(hub, order)
        child.run(files, lambda done: steps.downloading(done, size))
    outcome = push(hub, _push_order(order, wanted, listing), _PushProgress(order, steps))
    return Imported(
        prefix=order.prefix,
        digest=outcome.catalog.digest,
        commit=listing.commit,
        size_bytes=size,
        was_there=False,
    )


def _looked(hub: WritableHub, order: ImportOrder) -> PrefixState:
    """What the hub has there. Raises Rejected where it is another repository's."""
    state = read_state(hub, order.prefix)
    upstream = state.current.upstream if state.current is not None else None
    if upstream is not None and upstream.repository != order.repository.name:
        raise Rejected(
            f"cannot import {order.repository} to {order.prefix}: {hub.location} has "
            f"{upstream.repository} there"
        )
    return state


def _found(order: ImportOrder, state: PrefixState) -> Imported | None:
    """The model, where the hub has all of it. A push that is under way does not count."""
    if order.refresh:
        return None
    current = state.current
    if current is not None:
        sizes = {file.path: file.size_bytes for file in current.files}
    else:
        sizes = {each.key: each.size_bytes for each in state.plain if not state.pushes}
    try:
        paths = _choose(order, sizes)
    except Transient:
        return None  # there is nothing, or not all of it
    size = sum(sizes[path] for path in paths)
    if current is not None:
        return _from_catalog(order, current, size)
    return Imported(prefix=order.prefix, digest=None, commit=None, size_bytes=size, was_there=True)


def _from_catalog(order: ImportOrder, current: Catalog, size_bytes: int) -> Imported:
    return Imported(
        prefix=order.prefix,
        digest=current.digest,
        commit=current.upstream.revision if current.upstream is not None else None,
        size_bytes=size_bytes,
        was_there=True,
    )


def _chosen(order: ImportOrder, listing: Listing) -> dict[str, RemoteFile]:
    sizes = {path: file.size_bytes for path, file in listing.files.items()}
    try:
        return {path: listing.files[path] for path in _choose(order, sizes)}
    except Rejected as exc:
        raise Transient(str(exc)) from exc  # another commit may have it


def _choose(order: ImportOrder, sizes: Mapping[str, int]) -> Sequence[str]:
    """The paths of the model. Raises what the judgement does, in an import's words."""
    try:
        return order.judgement.choose(sizes)
    except XgenError as exc:
        cause = str(exc).removeprefix(f"cannot choose the files of {order.prefix}: ")
        kind = Rejected if isinstance(exc, Rejected) else Transient
        raise kind(f"cannot import {order.repository}: {cause}") from exc


def _is_same(current: Catalog, listing: Listing, files: Mapping[str, RemoteFile]) -> bool:
    """Whether the catalog holds these files of this commit."""
    if current.upstream is None or current.upstream.revision != listing.commit:
        return False
    sizes = {file.path: file.size_bytes for file in current.files}
    return all(sizes.get(path) == file.size_bytes for path, file in files.items())


def _check_room(wanted: Wanted, files: Mapping[str, RemoteFile]) -> None:
    """For what is not here yet."""
    needed = wanted.missing_bytes(files)
    free = shutil.disk_usage(wanted.folder).free
    if needed > free:
        raise Transient(
            f"cannot import {wanted.repository}: {_human(needed)} are needed and {_human(free)} "
            f"are free in {wanted.folder.parent}"
        )


def _check_writable(hub: WritableHub, order: ImportOrder) -> None:
    """Before hours of a download, not after them."""
    try:
        hub.save(order.prefix, _PROBE, b"")
        hub.delete(order.prefix, _PROBE)
    except XgenError as exc:
        raise Transient(
            f"cannot import {order.repository}: the hub must take it, and cannot: {exc}"
        ) from exc


def _push_order(order: ImportOrder, wanted: Wanted, listing: Listing) -> Order:
    """A prefix of GGUFs grows by the one that is imported; one of safetensors is one model."""
    return Order(
        folder=wanted.files,
        prefix=order.prefix,
        pushed_at=order.pushed_at,
        check_names=order.judgement.check_names,
        describe=lambda files: _described(order, wanted, listing, files),
        check_content=lambda _hashed: None,  # it was compared with what is listed there
        licence=listing.licence,
        upstream=order.repository.name,
        revision=listing.commit,
        keep_others=order.prefix.startswith(_GGUF),
    )


def _described(
    order: ImportOrder, wanted: Wanted, listing: Listing, files: Sequence[LocalFile]
) -> Facts:
    try:
        return order.judgement.describe(files)
    except Rejected as exc:
        cause = str(exc).replace(f"{os.path.realpath(wanted.files)}/", "")
        raise _Useless(
            f"cannot import {order.repository}: it is so at {site_of(order.environment)}, commit "
            f"{listing.commit}: {cause}; name another file or revision, or tell its owner"
        ) from exc


class _PushProgress:
    """Only what is uploaded counts: hashing is many times faster."""

    def __init__(self, order: ImportOrder, steps: Steps) -> None:
        self._repository = order.repository
        self._steps = steps
        self._lock = threading.Lock()
        self._counts = False
        self._done = 0
        self._total = 0

    def begin(self, doing: str, size_bytes: int) -> None:
        self._counts, self._done, self._total = doing == "uploading", 0, size_bytes
        self._steps.uploading(0, size_bytes)

    def advance(self, size_bytes: int) -> None:
        if self._steps.cancelled():
            raise Transient(f"cannot import {self._repository}: it is no longer wanted")
        with self._lock:
            if self._counts:
                self._done += size_bytes
                self._steps.uploading(self._done, self._total)


def _human(size: int) -> str:
    mib = size / 2**20
    return f"{mib:.1f} MiB" if mib < 1024 else f"{mib / 1024:.1f} GiB"
