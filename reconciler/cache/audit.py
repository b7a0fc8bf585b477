"""Reads all that is published and says what is not as it was pushed.

It locks nothing while it reads: fetches and evictions go on, and what they replaced meanwhile is
looked at as it is then. Damage is marked, so that an agent checks those files itself and fetches
them again.
"""

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from reconciler.cache.check import Checked, check_file
from reconciler.cache.eviction import Inode
from reconciler.cache.inventory import StoredRevision
from reconciler.cache.layout import Layout
from reconciler.cache.record import RecordedObject, load_record
from reconciler.cache.stamps import NEVER, Proof, Stamp, load_stamps, save_stamps, stamp_of
from reconciler.file_lock import held_now

_TRIES = 2
_DOUBT = "it looks changed since it was fetched, and of what was pushed only its size is known"


@dataclass(frozen=True, slots=True, kw_only=True)
class Audited:
    """One file. `fault` None: it is right, as far as `proof` tells; NONE: nobody can tell."""

    prefix: str
    digest: str
    path: str
    size_bytes: int
    proof: Proof
    fault: str | None = None


@dataclass(frozen=True, slots=True)
class _Seen:
    """`inode` None: there was no file to open."""

    checked: Checked
    inode: Inode | None = None


def published(item: StoredRevision) -> tuple[RecordedObject, ...]:
    """The files that should be there, sorted by path; none where the record is lost."""
    if item.record is None:
        return ()
    here = (each for each in item.record.objects if each.path in item.record.present)
    return tuple(sorted(here, key=lambda each: each.path))


def audit(
    layout: Layout, revisions: Iterable[StoredRevision], on_bytes: Callable[[int], None]
) -> tuple[Audited, ...]:
    """Every file of these revisions; one that several share is read once. Blocking."""
    known: dict[tuple[Inode, str], _Seen] = {}
    found: list[Audited] = []
    for item in revisions:
        checks: dict[str, _Seen] = {}
        stamps = load_stamps(layout.stamps(item.prefix, item.digest))
        for each in published(item):
            seen = _checked(layout, item, each, known, on_bytes)
            if seen is None:
                continue
            checked = seen.checked
            if _is_doubtful(checked, stamps.get(each.path)):
                seen = replace(seen, checked=replace(checked, stamp=None))
                checked = Checked(proof=Proof.NONE, fault=_DOUBT)
            checks[each.path] = seen
            found.append(
                Audited(
                    prefix=item.prefix,
                    digest=item.digest,
                    path=each.path,
                    size_bytes=each.size_bytes,
                    proof=checked.proof,
                    fault=checked.fault,
                )
            )
        _mark(layout, item, checks)
    return tuple(found)


def _is_doubtful(checked: Checked, stamp: Stamp | None) -> bool:
    """Whether it looked changed before now, and its size is all that could be compared."""
    if checked.proof is not Proof.SIZE or checked.stamp is None or stamp is None:
        return False
    return stamp.proof is Proof.NONE or not stamp.is_alike(checked.stamp)


def _checked(
    layout: Layout,
    item: StoredRevision,
    wanted: RecordedObject,
    known: dict[tuple[Inode, str], _Seen],
    on_bytes: Callable[[int], None],
) -> _Seen | None:
    """None where it is not wanted any more."""
    path = layout.folder(item.prefix, item.digest) / wanted.path
    for _ in range(_TRIES):
        try:
            before = os.stat(path)
            inode = (before.st_dev, before.st_ino)
            key = (inode, wanted.version)
            if key in known:
                on_bytes(wanted.size_bytes)
                return known[key]
            checked = check_file(os.fspath(path), wanted, on_bytes=on_bytes)
            if os.stat(path).st_ino == before.st_ino:
                known[key] = _Seen(checked, inode)
                return known[key]
        except FileNotFoundError:
            break
        except OSError as exc:
            return _Seen(Checked(proof=Proof.SIZE, fault=f"it cannot be read: {exc.strerror}"))
    record = load_record(layout.record(item.prefix, item.digest))
    if record is None or wanted.path not in record.present:
        return None  # evicted meanwhile
    return _Seen(Checked(proof=Proof.SIZE, fault="it is missing"))


def _mark(layout: Layout, item: StoredRevision, checks: dict[str, _Seen]) -> None:
    """Note what was proven. Not while somebody works on the prefix, nor where it cannot be."""
    if not checks:
        return
    try:
        with held_now(layout.lock(item.prefix)) as ours:
            if not ours:
                return
            path = layout.stamps(item.prefix, item.digest)
            folder = layout.folder(item.prefix, item.digest)
            stamps = load_stamps(path)
            marked = dict(stamps)
            for name, seen in checks.items():
                if seen.inode is not None:
                    marked |= _stamp(folder / name, name, seen)
            if marked != stamps:
                save_stamps(path, marked)
    except OSError:
        return  # it is said all the same


def _stamp(file: Path, name: str, seen: _Seen) -> dict[str, Stamp]:
    """Nothing for a file that was replaced since: who did that has stamped it."""
    try:
        status = os.stat(file)
    except FileNotFoundError:
        return {}
    if (status.st_dev, status.st_ino) != seen.inode:
        return {}
    checked = seen.checked
    if checked.stamp is not None and checked.stamp.is_of(status):
        return {name: checked.stamp}
    return {name: replace(stamp_of(status, checked.proof), mtime_ns=NEVER)}
