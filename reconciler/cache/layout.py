"""Where things stand in the models folder, and the steps that make them last.

<models-dir>/gguf/org_name            link to the folder below
            .rev/gguf/org_name/DIGEST/       the files, what backends are given
            .rev/gguf/org_name/DIGEST.json   the record: what was listed, what is there
            .rev/gguf/org_name/DIGEST.stamps how its files looked when they were right
            .rev/gguf/org_name/DIGEST.evicted    on its way out
            .rev/gguf/org_name/DIGEST.kept/  of an older installation, and not in the hub
            .rev/gguf/org_name/.lock
            .rev/gguf/org_name/.damaged      what the hub holds and is not what it says
            .partial/                        what is being written
            .use/                            who needs what, and when it was used last
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from reconciler.atomic_file import make_folder, replace_file, sync_folder


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths of one models folder. `models` is absolute and real."""

    models: Path

    @property
    def partials(self) -> Path:
        return self.models / ".partial"

    @property
    def uses(self) -> Path:
        return self.models / ".use"

    def link(self, prefix: str) -> Path:
        return self.models / prefix

    def revisions(self, prefix: str) -> Path:
        return self.models / ".rev" / prefix

    def folder(self, prefix: str, digest: str) -> Path:
        return self.revisions(prefix) / digest

    def record(self, prefix: str, digest: str) -> Path:
        return self.revisions(prefix) / f"{digest}.json"

    def stamps(self, prefix: str, digest: str) -> Path:
        return self.revisions(prefix) / f"{digest}.stamps"

    def evicted(self, prefix: str, digest: str) -> Path:
        return self.revisions(prefix) / f"{digest}.evicted"

    def kept(self, prefix: str, digest: str) -> Path:
        return self.revisions(prefix) / f"{digest}.kept"

    def damaged(self, prefix: str) -> Path:
        return self.revisions(prefix) / ".damaged"

    def lock(self, prefix: str) -> Path:
        return self.revisions(prefix) / ".lock"

    def linked_digest(self, prefix: str) -> str | None:
        """The revision that the prefix's link names; None where there is no such link of ours."""
        link = self.link(prefix)
        try:
            leads_to = os.readlink(link)
        except OSError:
            return None
        target = Path(os.path.normpath(_real(link.parent) / leads_to))
        return target.name if target.parent == self.revisions(prefix) else None

    def standing(self, prefix: str) -> Path | None:
        """A folder, or a link to one, that somebody else put where our link belongs."""
        link = self.link(prefix)
        if not link.is_dir() or self.linked_digest(prefix) is not None:
            return None
        return link


def publish_link(layout: Layout, prefix: str, digest: str) -> None:
    """Let the prefix name this revision, in one step. The prefix's lock is held."""
    link = layout.link(prefix)
    make_folder(link.parent)
    new = link.with_name(f".{link.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(os.path.relpath(layout.folder(prefix, digest), _real(link.parent)))
    os.replace(new, link)
    sync_folder(link.parent)


def replace_json(path: Path, data: Mapping[str, object]) -> None:
    """In one step, on disk when this returns. Raises OSError."""
    replace_file(path, json.dumps(data, indent=1).encode(), mode=0o666)


def has_size(path: Path, size_bytes: int) -> bool:
    try:
        return os.stat(path).st_size == size_bytes
    except OSError:
        return False


def _real(folder: Path) -> Path:
    """An operator may have made `<models-dir>/gguf` a link to a larger disk."""
    return Path(os.path.realpath(folder))
