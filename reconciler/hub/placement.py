"""Which object holds each file of a push (PURE).

An object is never overwritten with other content: pulls that are under way, and digests that are
pinned, go on with what they began.

    a catalog names its content, untouched since      kept where it is, whatever its name was
    .xgen/objects/<sha256> is there                   kept; compared, if written to since a catalog
    its plain path is taken by something as large     compared, as far as the store can prove it
    nobody else pushes, and the prefix is fresh
    or the push only adds to it                       its plain path, so that other tools see it
    else                                              .xgen/objects/<sha256>
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from reconciler.hub.catalog import CatalogFile, content_digest, object_key, push_key
from reconciler.hub.local_files import Hashed
from reconciler.hub.prefix_state import PrefixState


class Step(StrEnum):
    """COMPARE: kept if the store can prove that it is the same, else uploaded as an object."""

    KEEP = "keep"
    COMPARE = "compare"
    UPLOAD = "upload"


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """`key`: the object, relative to the prefix."""

    hashed: Hashed
    key: str
    step: Step

    @property
    def path(self) -> str:
        return self.hashed.file.path


def hashed_digest(files: Sequence[Hashed], *, beside: Sequence[CatalogFile] = ()) -> str:
    """Of the files together with those that stay `beside` them."""
    kept = [(each.path, each.size_bytes, each.sha256) for each in beside]
    new = [(each.file.path, each.file.size_bytes, each.sha256) for each in files]
    return content_digest(kept + new)


def place(
    files: Sequence[Hashed], state: PrefixState, *, digest: str, adds: bool, again: bool = False
) -> tuple[Placement, ...]:
    """`digest`: of the push that is announced. `adds`: it takes nothing away. `again`: what lies
    where a catalog says is to be written anew, so that it need not be what it should be."""
    known = _known(state, again=again)
    named = {file.key for each in state.pushed for file in each.catalog.files}
    others = [each for each in state.pushes if each.key != push_key(digest)]
    is_new = not (state.pushed or state.damaged or state.current)
    is_free = not others and (is_new or adds)
    taken: set[str] = set()
    placed = []
    for hashed in files:
        step, key = _one(hashed, state, known, named, is_free=is_free)
        if step is Step.UPLOAD and key in taken:
            step = Step.KEEP  # another file with the same content brings it
        taken.add(key)
        placed.append(Placement(hashed=hashed, key=key, step=step))
    return tuple(placed)


def _one(
    hashed: Hashed,
    state: PrefixState,
    known: dict[tuple[str, int], str],
    named: set[str],
    *,
    is_free: bool,
) -> tuple[Step, str]:
    path, size = hashed.file.path, hashed.file.size_bytes
    as_object = object_key(hashed.sha256)
    if (key := known.get((hashed.sha256, size))) is not None:
        return Step.KEEP, key
    there = state.stored.get(as_object)
    if there is not None and there.size_bytes == size:
        return (Step.COMPARE if as_object in named else Step.KEEP), as_object
    at_path = state.stored.get(path)
    if at_path is not None:
        return (Step.COMPARE, path) if at_path.size_bytes == size else (Step.UPLOAD, as_object)
    if is_free and not _blocked(path, state):
        return Step.UPLOAD, path
    return Step.UPLOAD, as_object


def _known(state: PrefixState, *, again: bool) -> dict[tuple[str, int], str]:
    """Where contents are (`again`: or belong), by (sha256, size), as the catalogs say."""
    return {
        (file.sha256, file.size_bytes): file.key
        for each in reversed(state.pushed)
        for file in each.catalog.files
        if again or state.untouched(file, each)
    }


def _blocked(path: str, state: PrefixState) -> bool:
    """A folder cannot have a file's name, where the hub is a folder."""
    parts = path.split("/")
    above = {"/".join(parts[:count]) for count in range(1, len(parts))}
    return any(key in above or key.startswith(f"{path}/") for key in state.stored)
