"""Removes a whole prefix."""

from reconciler.errors import Transient
from reconciler.hub.catalog import CATALOG, PUSHES
from reconciler.hub.writable import Stored, WritableHub


def remove_prefix(hub: WritableHub, prefix: str, stored: tuple[Stored, ...]) -> None:
    """The catalog (or a push's announcement) goes last: what is left is not taken as whole.

    Raises Transient, also where something is still there afterwards.
    """
    last = (PUSHES, CATALOG)
    for key in sorted((each.key for each in stored), key=lambda key: (key.startswith(last), key)):
        hub.delete(prefix, key)
    for unfinished in hub.unfinished(prefix) or ():
        hub.discard(prefix, unfinished)
    left = hub.stored(prefix)
    if left:
        raise Transient(
            f"cannot remove all of {prefix}: {left[0].key} is there again; is it being pushed?"
        )
