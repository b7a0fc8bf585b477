"""The node's models folder: looks models up without the network, and fetches what is missing."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import structlog

from reconciler.atomic_file import make_folder
from reconciler.cache.address import HubAddress, LocalAddress, parse_source
from reconciler.cache.budget import Budget
from reconciler.cache.choose import Undecided, Wish, choose, wish_of
from reconciler.cache.damage import Damages
from reconciler.cache.digests import pinned_digest
from reconciler.cache.importer import Importer
from reconciler.cache.in_place import find_in_place
from reconciler.cache.keeper import Keeper
from reconciler.cache.layout import Layout, publish_link
from reconciler.cache.listed_once import ListedOnce
from reconciler.cache.listing import listed
from reconciler.cache.partial import NO_ROOM, remove_dead
from reconciler.cache.pin_board import Owner
from reconciler.cache.pins import Holding
from reconciler.cache.published import Published
from reconciler.cache.pull import OnProgress, Pull
from reconciler.cache.record import load_record
from reconciler.cache.relink import relink
from reconciler.cache.restore import again, revision
from reconciler.cache.standing_folders import StandingFolders
from reconciler.cache.store import Store
from reconciler.cache.take_in import take_in
from reconciler.cache.usage import Usage
from reconciler.cache.vouching import Vouching
from reconciler.errors import Gone, Rejected, Transient, XgenError
from reconciler.file_lock import held
from reconciler.plan.desired import ModelSpec
from reconciler.plan.ids import FilesDigest
from reconciler.plan.observed import FilesCached, Push

log = structlog.get_logger(__name__)

_NOBODY = Owner(node="", data_dir="")


class ModelCache:
    """`store` None: no hub is set, only what is here can be used.

    `allowed_file_roots`: where `file://` may lead; None means anywhere. `importer`: for `hf://`.
    """

    def __init__(
        self,
        models_dir: Path,
        store: Store | None,
        *,
        allowed_file_roots: tuple[Path, ...] | None = None,
        importer: Importer | None = None,
        owner: Owner = _NOBODY,
        budget: Budget | None = None,
    ) -> None:
        self._layout = Layout(Path(os.path.realpath(models_dir)))
        self._store = store
        self._importer = importer
        self._allowed_file_roots = allowed_file_roots
        self._published = Published(self._layout)
        self._usage = Usage(self._layout)
        self.keeper = Keeper(self._layout, self._usage, owner, budget)
        self._standing = StandingFolders(self._layout, has_hub=store is not None)
        self._vouching = Vouching(self._layout)
        self._damages = Damages(self._layout, store.location if store is not None else "")

    @property
    def used_bytes(self) -> int:
        """On disk, as of the last change. What is used in place is not the cache's."""
        return self._usage.bytes

    def open(self) -> None:
        """Make the folders, and finish or remove what processes that are gone left half done."""
        try:
            make_folder(self._layout.partials)
            remove_dead(self._layout.partials)
            self.keeper.open()
            relink(self._layout)
        except OSError as exc:
            if not self._layout.models.is_dir():
                raise Rejected(f"cannot use {self._layout.models}: {exc.strerror}") from exc
            log.warning("models folder cannot be written", cause=exc.strerror)
        self._usage.measure()

    def lookup(self, spec: ModelSpec) -> FilesCached | None:
        """The model's files if all of them are here. Asks no network; cheap enough for each tick.

        None also where the spec names no files that can be had: `fetch` says why.
        """
        try:
            address = _address(spec)
            if isinstance(address, LocalAddress):
                return self._find_local(spec, address)
            wish = wish_of(spec, address.prefix, address.file)
            found = self._published.find(address.prefix, wish, pinned_digest(spec))
            return found or self._standing.find(spec, address.prefix, wish)
        except (XgenError, OSError):
            return None

    def needed(self, spec: ModelSpec) -> tuple[Holding, ...]:
        """What of the cache must stay for a spec. Asks no network."""
        try:
            address = _address(spec)
            if isinstance(address, LocalAddress):
                return ()
            wish = wish_of(spec, address.prefix, address.file)
            return self._published.needed(address.prefix, wish, pinned_digest(spec))
        except (XgenError, OSError):
            return ()

    def has_some_of(self, prefix: str) -> bool:
        """Whether a model of this prefix can be served from here. Reads the disk."""
        linked = self._layout.linked_digest(prefix)
        return linked is not None or self._layout.standing(prefix) is not None

    def holding_of(self, digest: FilesDigest) -> Holding | None:
        """Where the files of a running backend stand; None for what is used in place."""
        return self._published.holding_of(digest)

    def fetch(
        self,
        spec: ModelSpec,
        *,
        on_progress: OnProgress = lambda _done, _total: None,
        on_check: OnProgress = lambda _done, _total: None,
        on_import: OnProgress = lambda _done, _total: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> FilesCached:
        """Bring the model's files here. Blocking, for a thread; does nothing where they are here.

        What is here and lacks a file is made whole again, unless the hub has that push no more.

        `on_check`: told of files that look changed and are read, before anything is brought.
        `on_import`: told of what the hub does not hold and gets. Raises Transient (also when
        cancelled) or Rejected.
        """
        address = _address(spec)
        if isinstance(address, LocalAddress):
            return self._find_local(spec, address)
        if (found := self.lookup(spec)) is not None:
            return found
        prefix = address.prefix
        if (found := self._mended(spec, prefix, on_check, cancelled)) is not None:
            return found
        pull = replace(self._pull(spec, prefix, on_progress, cancelled), besides=self.needed(spec))
        pull = self._import(spec, address, pull, on_import)
        wish = wish_of(spec, prefix, address.file)
        return self._bring(
            spec, address, pull, lambda: self.lookup(spec) or self._restored(spec, wish, pull)
        )

    def refresh(
        self,
        spec: ModelSpec,
        *,
        on_progress: OnProgress = lambda _done, _total: None,
        cancelled: Callable[[], bool] = lambda: False,
    ) -> None:
        """Bring what the hub holds now, beside what is here; then `lookup` finds that.

        For the models of a hub. Blocking; until it ends, and where it fails, all stays as it is.
        """
        address = _address(spec)
        if not isinstance(address, LocalAddress):
            pull = self._pull(spec, address.prefix, on_progress, cancelled)
            self._bring(spec, address, pull, lambda: None)

    def _pull(
        self,
        spec: ModelSpec,
        prefix: str,
        on_progress: OnProgress,
        cancelled: Callable[[], bool],
    ) -> Pull:
        if self._store is None:
            raise Rejected(f"cannot fetch {prefix}: no hub is set, and it is not cached")
        return Pull(
            store=self._store,
            layout=self._layout,
            room=self.keeper.room,
            prefix=prefix,
            damage=self._damages.of(prefix, spec),
            on_progress=self._measuring(prefix, on_progress),
            cancelled=cancelled,
        )

    def _bring(
        self,
        spec: ModelSpec,
        address: HubAddress,
        pull: Pull,
        here: Callable[[], FilesCached | None],
    ) -> FilesCached:
        """`here`: what makes a fetch of what the hub holds now needless, asked once nobody else is
        at work on the prefix."""
        prefix = address.prefix
        wish = wish_of(spec, prefix, address.file)
        try:
            make_folder(self._layout.revisions(prefix))
            with held(self._layout.lock(prefix), cancelled=pull.cancelled):
                self._published.forget()
                return here() or self._fetch(spec, wish, pull)
        except OSError as exc:
            if exc.errno in NO_ROOM:
                self.keeper.relieve()
            failure = Transient(f"cannot fetch {prefix} into {self._layout.models}: {exc.strerror}")
            return self._standing.use(spec, prefix, wish, failure)
        finally:
            self._usage.measure_prefix(prefix)

    def _mended(
        self, spec: ModelSpec, prefix: str, on_check: OnProgress, cancelled: Callable[[], bool]
    ) -> FilesCached | None:
        """Check what is here and looks changed: without the hub, if that is all it takes."""
        needed = self.needed(spec)
        if not needed:
            return None
        try:
            why = "no hub is set" if self._store is None else None
            found = self.keeper.mend(needed, on_check, cancelled, unsure_because=why)
            self._published.trust(found)
        except OSError as exc:
            raise Transient(f"cannot check the files of {prefix}: {exc.strerror}") from exc
        return self.lookup(spec)

    def _import(
        self, spec: ModelSpec, address: HubAddress, pull: Pull, on_progress: OnProgress
    ) -> Pull:
        """Have the hub hold the model of a repository. Asks nobody where it does already, or where
        a folder here stands for it. The pull that goes on need not list what was listed here."""
        repository, prefix = address.repository, address.prefix
        if repository is None or self._importer is None or self._layout.standing(prefix):
            return pull
        listing = pull.store.objects(prefix)
        sizes = {item.path: item.size_bytes for item in listing}
        try:
            choose(sizes, wish_of(spec, prefix, address.file))
        except Undecided:
            pass  # an import could not decide either
        except Transient:
            self._importer.bring(
                repository,
                file=address.file,
                format=spec.format,
                on_progress=on_progress,
                cancelled=pull.cancelled,
            )
            return pull
        return replace(pull, store=ListedOnce(pull.store, prefix, listing))

    def listed_digest(self, spec: ModelSpec) -> FilesDigest | None:
        """The digest that a fetch would bring now. Blocking; raises as `fetch` does.

        None where there is nothing to compare with: files in place, a pinned digest, no hub.
        """
        address = _address(spec)
        if self._store is None or isinstance(address, LocalAddress) or spec.digest is not None:
            return None
        prefix = address.prefix
        if self._layout.standing(prefix) is not None:
            return None
        record = listed(self._store, prefix)
        choice = choose(record.sizes, wish_of(spec, prefix, address.file), record.main_ref)
        return record.digest_of(choice.paths)

    def newer_push(
        self, spec: ModelSpec, *, cancelled: Callable[[], bool] = lambda: False
    ) -> Push | None:
        """What the hub holds now instead of what is here; None: the same, or nothing to compare.

        Where a catalog has appeared for the very bytes that are here, they get its digest, once
        they were read and compared. Blocking; raises as `fetch` does.
        """
        address, found = _address(spec), self.lookup(spec)
        if isinstance(address, LocalAddress) or self._store is None or found is None:
            return None
        if spec.digest is not None or found.revision is None:
            return None
        prefix = address.prefix
        record = listed(self._store, prefix)
        choice = choose(record.sizes, wish_of(spec, prefix, address.file), record.main_ref)
        digest = record.digest_of(choice.paths)
        if digest == found.digest:
            return None
        if self._vouching.applies(found, record):
            done = self._vouching.vouch(prefix, found, record, choice.paths, cancelled)
            self._published.forget()
            if done:
                return None
        items = [item for item in record.objects if item.path in choice.paths]
        return Push(
            digest=digest,
            revision=record.digest,
            verified=record.is_verified,
            damaged=self._damages.of(prefix, spec).said_of(items),
        )

    def is_still_damaged(self, spec: ModelSpec) -> bool:
        """Whether a fetch would fail again for what was damaged in the hub. Blocking.

        Asks the hub for a listing and no more; raises as `fetch` does.
        """
        address = _address(spec)
        if isinstance(address, LocalAddress) or self._store is None:
            return False
        prefix, pinned = address.prefix, pinned_digest(spec)
        owed = self._published.owed(prefix, wish_of(spec, prefix, address.file), pinned)
        known = load_record(self._layout.record(prefix, owed.digest)) if owed else None
        try:
            of = known.digest if known is not None and known.is_verified else pinned
            record = listed(self._store, prefix, of)
        except Gone:
            return False  # what is fetched now is something else
        return self._damages.of(prefix, spec).said_of(record.objects) is not None

    def try_anew(self, spec: ModelSpec) -> None:
        """Let the next fetch for a spec bring what was damaged in the hub. Never blocks."""
        self._damages.forgive(spec)

    def retire(self, spec: ModelSpec, *, keep: FilesDigest) -> None:
        """Give up what is cached for a spec, but for `keep`: `fetch` brings what the hub holds."""
        address = _address(spec)
        if not isinstance(address, LocalAddress):
            wish = wish_of(spec, address.prefix, address.file)
            self._published.retire(address.prefix, wish, keep)

    def _measuring(self, prefix: str, on_progress: OnProgress) -> OnProgress:
        def progressed(done: int, total: int) -> None:
            on_progress(done, total)
            self._usage.keep_up(prefix)

        return progressed

    def _fetch(self, spec: ModelSpec, wish: Wish, pull: Pull) -> FilesCached:
        """With the prefix's lock held."""
        prefix = pull.prefix
        try:
            record = revision(self._layout, pull.store, prefix, pinned_digest(spec))
        except XgenError as exc:
            return self._standing.use(spec, prefix, wish, exc)
        choice = choose(record.sizes, wish, record.main_ref)
        self.keeper.outdated = True
        self._published.reinstate(prefix, record.digest_of(choice.paths))
        if self._layout.standing(prefix) is not None:
            taken = take_in(self._layout, prefix, record, cancelled=pull.cancelled)
            if (
                taken is None
                and (found := self._standing.use_unmovable(spec, prefix, wish)) is not None
            ):
                return found
            record = taken or record
        pull.run(record, choice.paths)
        if self._layout.standing(prefix) is None and self._leads(spec, prefix):
            publish_link(self._layout, prefix, record.digest)
        return self._fetched(spec, prefix, wish)

    def _leads(self, spec: ModelSpec, prefix: str) -> bool:
        """Whether models without a `digest:` go along. What another model pins is no push that
        they take up."""
        return pinned_digest(spec) is None or self._layout.linked_digest(prefix) is None

    def _restored(self, spec: ModelSpec, wish: Wish, pull: Pull) -> FilesCached | None:
        """The revision that is here, made whole again; with the prefix's lock held."""
        prefix = pull.prefix
        owed = self._published.owed(prefix, wish, pinned_digest(spec))
        if owed is None or self._layout.standing(prefix) is not None:
            return None
        record = again(self._layout, pull.store, owed, self.keeper.tell)
        if record is None:
            return None
        pull.run(record, tuple(owed.paths))
        return self._fetched(spec, prefix, wish)

    def _fetched(self, spec: ModelSpec, prefix: str, wish: Wish) -> FilesCached:
        self._published.forget()
        found = self._published.find(prefix, wish, pinned_digest(spec))
        if found is None:
            raise Transient(
                f"cannot use {prefix}: its files vanished right after they were fetched"
            )
        return found

    def _find_local(self, spec: ModelSpec, address: LocalAddress) -> FilesCached:
        if spec.digest is not None:
            raise Rejected(f"cannot pin {spec.source}: files used in place have no lasting digest")
        wish = wish_of(spec, address.path, address.file)
        return find_in_place(Path(address.path), wish, self._allowed_file_roots)


def _address(spec: ModelSpec) -> HubAddress | LocalAddress:
    return parse_source(spec.source, spec.file, spec.format)
