"""What the hub holds of a prefix now, as a record of which nothing is here."""

import difflib
import tempfile
from collections.abc import Sequence

from reconciler.cache.choose import is_hidden
from reconciler.cache.record import Record, new_record
from reconciler.cache.snapshots import main_ref_path
from reconciler.cache.store import Store, StoredObject
from reconciler.errors import Damaged, Gone, Transient

_MAX_REF_BYTES = 200


class Absent(Transient):
    """The hub answered, and has nothing of a prefix. A mount that is not there looks the same, so
    that nothing which was known of it is given up for that: it is not Gone."""


def listed(store: Store, prefix: str, digest: str | None = None) -> Record:
    """The revision of `digest`, or the one in force. Blocking.

    Raises Gone where the hub does not have it, Absent where it has nothing of the prefix, Transient
    where it does not say; without a catalog it has only what is there.
    """
    listing = [item for item in store.objects(prefix, digest) if not is_hidden(item.path)]
    if not listing:
        raise Absent(f"cannot fetch {prefix}: {_why_nothing(store, prefix)}")
    record = new_record(listing, _main_ref(store, listing))
    if digest not in (None, record.digest):
        raise Gone(
            f"cannot fetch {prefix}: the manifest pins {digest}, the hub holds {record.digest}, "
            "and no catalog, so no other"
        )
    return record


def _main_ref(store: Store, listing: Sequence[StoredObject]) -> str | None:
    path = main_ref_path(item.path for item in listing)
    stored = next((item for item in listing if item.path == path), None)
    if stored is None or stored.size_bytes > _MAX_REF_BYTES:
        return None
    with tempfile.TemporaryFile() as file:
        try:
            store.read(stored, file.fileno(), on_bytes=lambda _: None, cancelled=lambda: False)
        except Damaged as exc:  # it is small, and every look at the hub reads it anew
            raise Transient(str(exc)) from exc
        file.seek(0)
        return file.read().decode(errors="replace").strip()


def _why_nothing(store: Store, prefix: str) -> str:
    prefixes = store.prefixes()
    if prefix in prefixes:
        return (
            "in the hub it is a folder without a file, or its first push has not ended; push the "
            "model"
        )
    close = difflib.get_close_matches(prefix, prefixes, n=3, cutoff=0.5)
    return "the hub has none" + (f"; nearest: {', '.join(close)}" if close else "")
