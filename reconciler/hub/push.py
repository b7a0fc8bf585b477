"""Pushes a folder to a prefix: its files first, its catalog last.

    hash  >  compare with what is there  >  announce  >  upload  >  check  >  catalog

Until the catalog is written, the prefix is what it was: the old catalog and all its objects stay,
and a fresh prefix has a push announced (`.xgen/pushes/`) and no catalog, so it is not complete. Two
pushes at once never mix: only the first to announce itself writes to plain paths, each content has
an object of its own, and the last catalog counts: it is made from the one in force, and written
only while that is in force. A store must list what was just written: S3 does.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

import msgspec

from reconciler.errors import Rejected, Transient, XgenError
from reconciler.hub.catalog import (
    CATALOG,
    Catalog,
    CatalogFile,
    Facts,
    Upstream,
    catalog_key,
    dump_catalog,
    object_key,
    parse_catalog,
    push_key,
)
from reconciler.hub.in_parallel import in_parallel
from reconciler.hub.integrity import bad_by_content
from reconciler.hub.local_files import (
    Hashed,
    LocalFile,
    changed,
    files_below,
    hash_file,
    unchanged,
)
from reconciler.hub.objects import checked_prefix
from reconciler.hub.placement import Placement, Step, hashed_digest, place
from reconciler.hub.prefix_state import PrefixState, read_state
from reconciler.hub.writable import Stored, Watch, WritableHub

_TRIES = 50
"""Of putting a catalog in force; each that fails is another push that has ended meanwhile."""


class Progress(Protocol):
    """Told from several threads."""

    def begin(self, doing: str, size_bytes: int) -> None: ...
    def advance(self, size_bytes: int) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What to push, and what to say of it.

    `pushed_at`: RFC 3339. `again`: upload also what is there. `dry_run`: change nothing.
    `keep_others`: what is in force and the folder does not have stays part of the prefix.
    `pulled`: what another hub said of the folder; it counts where that is still its content.
    `check_names`, `describe` and `check_content` are the cache's and the backends' judgement of the
    files; all raise XgenError where no node could use them.
    """

    folder: Path
    prefix: str
    pushed_at: str
    check_names: Callable[[Iterable[str], str], None] = field(repr=False)
    describe: Callable[[Sequence[LocalFile]], Facts] = field(repr=False)
    check_content: Callable[[Sequence[Hashed]], None] = field(repr=False)
    licence: str | None = None
    upstream: str | None = None
    revision: str | None = None
    again: bool = False
    dry_run: bool = False
    keep_others: bool = False
    pulled: Catalog | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`before`: the digest in force until now. `uploaded`: the paths that were (or would be).

    `is_new`: whether a catalog was (or would be) written.
    """

    catalog: Catalog
    before: str | None
    uploaded: tuple[str, ...]
    is_new: bool

    @property
    def uploaded_bytes(self) -> int:
        files = {file.path: file.size_bytes for file in self.catalog.files}
        return sum(files[path] for path in self.uploaded)


def push(hub: WritableHub, order: Order, progress: Progress) -> Outcome:
    """Blocking. Raises Rejected for a folder or prefix that cannot be pushed; Transient."""
    local = _local_files(order)
    facts = order.describe(local)
    read_state(hub, order.prefix)  # a hub that is away is noticed before the hashing
    progress.begin("hashing", sum(file.size_bytes for file in local))
    hashed = in_parallel(hash_file, local, progress.advance)
    order.check_content(hashed)
    state = read_state(hub, order.prefix)
    drafts = _Drafts(hub, order, hashed, facts)
    draft = drafts.on(state)
    if not order.again and state.current is not None and _is_there(draft, state.current, state):
        return _outcome(state.current, state, ())
    if order.dry_run:
        placed = _placed(hub, order, hashed, state, draft)
        catalog = _with_keys(draft, placed)
        _written(hub, order.prefix, catalog)
        return _outcome(catalog, state, placed)
    with _announced(hub, order.prefix, draft.digest, state):
        state = read_state(hub, order.prefix)  # with those who announced themselves before us
        placed = _placed(hub, order, hashed, state, draft)
        _written(hub, order.prefix, _with_keys(drafts.on(state), placed))
        _upload(hub, order.prefix, placed, progress)
        return _put_in_force(hub, drafts, placed)


def _local_files(order: Order) -> tuple[LocalFile, ...]:
    if any(part.startswith(".") for part in checked_prefix(order.prefix).split("/")):
        raise Rejected(f"cannot push to {order.prefix}: hidden names are the hub's own")
    order.check_names([order.prefix], "the hub")
    local = files_below(order.folder)
    if not local:
        raise Rejected(f"cannot push {order.folder}: it holds no file")
    order.check_names((file.path for file in local), str(order.folder))
    return local


@dataclass(frozen=True, slots=True)
class _Drafts:
    """New catalogs without the folder's files, on top of what is in force. `proven`: what was read
    and compared on the way, and whether it was right."""

    hub: WritableHub
    order: Order
    hashed: Sequence[Hashed]
    facts: Facts
    proven: dict[Stored, bool] = field(default_factory=dict)

    def on(self, state: PrefixState) -> Catalog:
        kept = self._kept(state) if self.order.keep_others else ()
        return _draft(self.order, state, self.hashed, kept, self.facts)

    def _kept(self, state: PrefixState) -> tuple[CatalogFile, ...]:
        """What was written to later is read: the new catalog vouches for it as for the rest."""
        paths = {each.file.path for each in self.hashed}
        files = state.current.files if state.current is not None else ()
        kept = tuple(each for each in files if each.path not in paths and state.has(each))
        touched = [each for each in kept if not state.is_as_pushed(each)]
        new = tuple(each for each in touched if state.stored[each.key] not in self.proven)
        prefix = self.order.prefix
        bad = {each.path for each in bad_by_content(self.hub, prefix, new, lambda _count: None)}
        self.proven.update({state.stored[each.key]: each.path not in bad for each in new})
        wrong = {each.path for each in touched if not self.proven[state.stored[each.key]]}
        return tuple(each for each in kept if each.path not in wrong)


def _put_in_force(hub: WritableHub, drafts: _Drafts, placed: Sequence[Placement]) -> Outcome:
    """On top of what is in force by now: others push, too."""
    prefix = drafts.order.prefix
    for _ in range(_TRIES):
        state = read_state(hub, prefix)
        catalog = _with_keys(drafts.on(state), placed)
        _check(hub, state, catalog)
        content = _written(hub, prefix, catalog)
        hub.save(prefix, catalog_key(catalog.digest), content)
        if hub.swap(prefix, CATALOG, content, state.in_force):
            return _outcome(catalog, state, placed)
    raise Transient(f"cannot push {prefix}: other pushes to it end all the time; push again")


def _draft(
    order: Order,
    state: PrefixState,
    hashed: Sequence[Hashed],
    kept: tuple[CatalogFile, ...],
    facts: Facts,
) -> Catalog:
    """The new catalog without the folder's files. What is not said again stays as it was."""
    digest = hashed_digest(hashed, beside=kept)
    pulled = order.pulled if order.pulled is not None and order.pulled.digest == digest else None
    before = tuple(each for each in (pulled, state.current) if each is not None)
    return Catalog(
        digest=digest,
        pushed_at=order.pushed_at,
        facts=Facts(format=facts.format) if kept else facts,  # what several have in common
        licence=order.licence or next((each.licence for each in before if each.licence), None),
        upstream=_upstream(order, digest, before),
        files=kept,
    )


def _upstream(order: Order, digest: str, before: Sequence[Catalog]) -> Upstream | None:
    """The first of the catalogs before that names one counts; a revision only for one content."""
    known = [(each.digest, each.upstream) for each in before if each.upstream is not None]
    repository = order.upstream or (known[0][1].repository if known else None)
    if repository is None:
        return None
    revisions = (
        upstream.revision
        for of_digest, upstream in known
        if of_digest == digest and upstream.repository == repository
    )
    return Upstream(repository=repository, revision=order.revision or next(revisions, None))


def _is_there(draft: Catalog, current: Catalog, state: PrefixState) -> bool:
    """Not by size alone: what was written to since is compared by going on."""
    same = (draft.digest, draft.facts, draft.licence, draft.upstream) == (
        current.digest,
        current.facts,
        current.licence,
        current.upstream,
    )
    return same and not state.damaged and all(map(state.is_as_pushed, current.files))


@contextmanager
def _announced(hub: WritableHub, prefix: str, digest: str, state: PrefixState) -> Iterator[None]:
    """Others see that we push. After a failure that stays, where there is no catalog to go by."""
    hub.save(prefix, push_key(digest), b"")
    try:
        yield
    except BaseException:
        if state.current is not None:
            with suppress(XgenError):
                hub.delete(prefix, push_key(digest))
        raise
    hub.delete(prefix, push_key(digest))


def _placed(
    hub: WritableHub, order: Order, hashed: Sequence[Hashed], state: PrefixState, draft: Catalog
) -> tuple[Placement, ...]:
    """With the comparisons made: only KEEP and UPLOAD are left."""
    adds, again = order.keep_others, order.again
    placed = place(hashed, state, digest=draft.digest, adds=adds, again=again)

    def compared(each: Placement, watch: Watch) -> Placement:
        if each.step is not Step.COMPARE:
            return each
        with unchanged(each.hashed.file) as source:
            if hub.holds(state.stored[each.key], order.prefix, source, watch):
                return replace(each, step=Step.KEEP)
        return replace(each, step=Step.UPLOAD, key=object_key(each.hashed.sha256))

    found = in_parallel(compared, placed, lambda _count: None)
    if order.again:
        found = [replace(each, step=Step.UPLOAD) for each in found]
    return tuple(found)


def _with_keys(draft: Catalog, placed: Sequence[Placement]) -> Catalog:
    files = [
        CatalogFile(
            path=each.path,
            key=each.key,
            size_bytes=each.hashed.file.size_bytes,
            sha256=each.hashed.sha256,
            crc32=f"{each.hashed.crc32:08x}",
        )
        for each in placed
    ]
    every = sorted((*draft.files, *files), key=lambda file: file.path)
    return msgspec.structs.replace(draft, files=tuple(every))


def _written(hub: WritableHub, prefix: str, catalog: Catalog) -> bytes:
    """As JSON. Raises Rejected for what no reader would take: that is never put in force."""
    content = dump_catalog(catalog)
    parse_catalog(content, f"that a push would write to {prefix} in {hub.location}")
    return content


def _upload(hub: WritableHub, prefix: str, placed: Sequence[Placement], progress: Progress) -> None:
    new = [each for each in placed if each.step is Step.UPLOAD]
    progress.begin("uploading", sum(each.hashed.file.size_bytes for each in new))

    def upload(each: Placement, watch: Watch) -> None:
        file = each.hashed.file
        with unchanged(file) as source:
            crc32 = hub.upload(prefix, each.key, source, file.size_bytes, watch)
        if crc32 != each.hashed.crc32:
            raise changed(file)

    in_parallel(upload, new, progress.advance)


def _check(hub: WritableHub, state: PrefixState, catalog: Catalog) -> None:
    """What the catalog will say is there, as the store tells it. Its MD5s were compared before."""
    for file in catalog.files:
        if not state.has(file):
            stored = state.stored.get(file.key)
            raise Transient(
                f"cannot push {state.prefix}: {hub.location} has "
                f"{stored.size_bytes if stored is not None else None} bytes of {file.key}, not "
                f"{file.size_bytes}; push again"
            )


def _outcome(catalog: Catalog, state: PrefixState, placed: Sequence[Placement]) -> Outcome:
    return Outcome(
        catalog=catalog,
        before=state.current.digest if state.current is not None else None,
        uploaded=tuple(each.path for each in placed if each.step is Step.UPLOAD),
        is_new=bool(placed),
    )
