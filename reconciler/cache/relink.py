"""Sets the links that a process did not live to set, after its last file and before the link."""

import os

from reconciler.cache.choose import Undecided, Wish, choose
from reconciler.cache.layout import Layout, publish_link
from reconciler.cache.record import Record, load_record
from reconciler.errors import Transient
from reconciler.file_lock import held_now


def relink(layout: Layout) -> None:
    """Give each prefix without a link one to its newest whole revision. Raises OSError.

    Nothing depends on it but people: lookups go by the records.
    """
    for folder in (layout.models / ".rev").glob("*/*"):
        prefix = f"{folder.parent.name}/{folder.name}"
        if os.path.lexists(layout.link(prefix)) or not folder.is_dir():
            continue
        with held_now(layout.lock(prefix)) as ours:
            if not ours:
                continue  # another process is at work on it, and will set the link
            records = sorted(folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
            for record in map(load_record, reversed(records)):
                if record is not None and _is_whole(record, prefix):
                    publish_link(layout, prefix, record.digest)
                    break


def _is_whole(record: Record, prefix: str) -> bool:
    try:
        choice = choose(record.sizes, Wish(where=prefix), record.main_ref)
    except Undecided:
        return bool(record.present)  # several models: whole is what somebody asked for
    except Transient:
        return False
    return record.present.issuperset(choice.paths)
