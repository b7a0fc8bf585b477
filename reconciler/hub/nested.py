"""Another hub whose BASE lies in this one: what is below it is no model of ours (PURE).

base/gguf/org_a/.xgen/catalog.json    to s3://models/base: the prefix gguf/org_a
                                      to s3://models: nothing of the "prefix" base/gguf
"""

from collections.abc import Iterable

from reconciler.errors import Rejected

_RECORDS = ".xgen/"


class OtherHub(Rejected):
    """`hub`: what to give as --hub for the models there."""

    def __init__(self, message: str, hub: str) -> None:
        super().__init__(message)
        self.hub = hub


def hub_inside(location: str, prefix: str, keys: Iterable[str]) -> str | None:
    """The hub whose records lie deeper below the prefix than its own; None: there is none.

    `location`: as a hub tells it. `keys`: relative to the prefix.
    """
    for key in keys:
        folder, found, _ = key.partition(f"/{_RECORDS}")
        if found:
            place = location.partition(" at ")[0] if location.startswith("s3://") else location
            return "/".join([place, *f"{prefix}/{folder}".split("/")[:-2]])
    return None


def other_hub(location: str, prefix: str, keys: Iterable[str]) -> OtherHub | None:
    """The error for a prefix that has no records of its own, and others' below it."""
    every = tuple(keys)
    inside = hub_inside(location, prefix, every)
    if inside is None or any(key.startswith(_RECORDS) for key in every):
        return None
    return OtherHub(
        f"cannot use {prefix} in {location}: it is no model, models of another hub lie in it; "
        f"say --hub {inside}",
        inside,
    )
