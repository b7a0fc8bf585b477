"""The cache that a command of `cache` works on, and what is known of who needs it."""

import difflib
import os
import shutil
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from reconciler.cache.inventory import StoredRevision
from reconciler.cache.layout import Layout
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.pin_board import Owner, PinBoard
from reconciler.cache.pins import Pins, pins_of
from reconciler.cli.options import data_dir
from reconciler.errors import Rejected
from reconciler.manifest.resolve import resolve
from reconciler.manifest.select import select
from reconciler.node.data_folder import read_json
from reconciler.plan.ids import NodeName
from reconciler.source.last_good import LastGood

ModelsDir = Annotated[
    Path | None,
    typer.Option(
        envvar="XGEN_MODELS_DIR", metavar="DIR", help="Model files. [default: DATA_DIR/models]"
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A models folder, and the data folder of the agent that uses it."""

    layout: Layout
    data_dir: Path
    board: PinBoard
    owner: Owner

    def disk_bytes(self) -> int:
        return shutil.disk_usage(self.layout.models).total

    def manifest_pins(self) -> Pins | None:
        """What the last manifest of the data folder's agent needs here; None: there is none.

        Asked where the agent has not said itself what it needs: an older release never did. Raises
        Rejected where the manifest that was kept is damaged.
        """
        kept = LastGood(self.data_dir / "last-good").load()
        if kept.error is not None:
            raise Rejected(f"cannot tell what models need: {kept.error}")
        manifest = resolve(None, kept.files).manifest if kept.files else None
        if manifest is None:
            return None
        desired = select(manifest, node=NodeName(self.owner.node), revision=kept.revision or "")
        cache = ModelCache(self.layout.models, None)
        return pins_of((model.name, cache.needed(model.spec)) for model in desired.models)

    def pins(self) -> Pins | None:
        """What all agents need here, as far as it is known; None: nobody has said anything."""
        pins, own = self.board.pins(), None
        if self.board.said_by_owner() is None:
            own = self.manifest_pins()
        if own is None and not self.board.said():
            return None
        return pins | own if own is not None else pins


def opened(data: Path | None, models: Path | None) -> Place:
    """Raises Rejected where there is no such folder."""
    folder = data_dir(data)
    where = (models or folder / "models").absolute()
    if not where.is_dir():
        raise Rejected(
            f"cannot use models folder {where}: there is none; name it with --models-dir, or the "
            "agent's data folder with --data-dir"
        )
    node = read_json(folder / "node.json").get("node")
    owner = Owner(
        node=node if isinstance(node, str) else socket.gethostname(), data_dir=str(folder)
    )
    layout = Layout(Path(os.path.realpath(where)))
    return Place(layout=layout, data_dir=folder, board=PinBoard(layout, owner), owner=owner)


def of_prefix(
    revisions: Iterable[StoredRevision], prefix: str | None, where: Path
) -> list[StoredRevision]:
    """Those of one prefix, or all. Raises Rejected where the cache has none of it."""
    every = list(revisions)
    found = [item for item in every if prefix in (None, item.prefix)]
    if prefix is not None and not found:
        close = difflib.get_close_matches(prefix, {item.prefix for item in every}, n=3, cutoff=0.5)
        nearest = f"; nearest: {', '.join(close)}" if close else ""
        raise Rejected(f"cannot find {prefix}: {where} has none{nearest}")
    return found


def rfc3339(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
