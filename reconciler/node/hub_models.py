"""What the hub holds, as JSON: of the command line, and of `GET /api/storage/models`."""

import asyncio
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.cache.choose import Wish, choose
from reconciler.cache.model_cache import ModelCache
from reconciler.errors import Rejected, Transient, XgenError
from reconciler.hub.nested import OtherHub
from reconciler.hub.prefix_state import PrefixState, read_state
from reconciler.hub.writable import WritableHub
from reconciler.plan.ids import NodeName

KEPT_SECONDS = 30.0
"""So long an answer is given again: the hub is not asked at every reload of a page."""
LIMIT_SECONDS = 10.0
"""For the hub to answer. It goes on being asked: whoever comes later may have the answer."""
_AT_ONCE = 8

Row = dict[str, object]


class HubModels:
    """The listing of this node. `hub` None: there is none."""

    def __init__(
        self,
        hub: WritableHub | None,
        *,
        cache: ModelCache,
        node: NodeName,
        limit_seconds: float = LIMIT_SECONDS,
        kept_seconds: float = KEPT_SECONDS,
    ) -> None:
        self._hub = hub
        self._cache = cache
        self._node = node
        self._limit_seconds = limit_seconds
        self._kept_seconds = kept_seconds
        self._rows: list[Row] = []
        self._read_at: float | None = None
        self._reading: asyncio.Task[None] | None = None

    async def listing(self) -> Mapping[str, object]:
        """`hub`, `models`: as docs/management.md has them. Raises Rejected without a hub, Transient
        while it does not answer."""
        if self._hub is None:
            raise Rejected("cannot list the hub: no hub is set; give --hub")
        if self._read_at is None or time.monotonic() - self._read_at >= self._kept_seconds:
            await self._read_anew(self._hub)
        models = await asyncio.to_thread(self._with_nodes, self._rows)
        return {"hub": self._hub.location, "models": models}

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait([self._reading])
        if self._hub is not None:
            self._hub.close()

    async def _read_anew(self, hub: WritableHub) -> None:
        """Whoever asks meanwhile waits for the same answer."""
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(hub), name="hub-models")
            self._reading.add_done_callback(self._ended)
        try:
            async with asyncio.timeout(self._limit_seconds):
                await asyncio.shield(self._reading)
        except TimeoutError:
            raise Transient(
                f"cannot list {hub.location}: no answer within {self._limit_seconds:g} s"
            ) from None

    def _ended(self, reading: asyncio.Task[None]) -> None:
        """Its failure was told to whoever waited for it; perhaps nobody did any more."""
        self._reading = None
        if not reading.cancelled():
            reading.exception()

    async def _read(self, hub: WritableHub) -> None:
        found: list[Row] = []
        await in_daemon_thread(lambda: found.extend(contents_of(hub).models), name="hub-models")
        self._rows, self._read_at = found, time.monotonic()

    def _with_nodes(self, rows: list[Row]) -> list[Row]:
        return [
            row | {"nodes": [self._node] if self._cache.has_some_of(str(row["prefix"])) else []}
            for row in rows
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """What a hub holds. `others`: hubs whose BASE lies in it, as --hub takes them."""

    models: list[Row]
    others: list[str]


def contents_of(hub: WritableHub) -> Contents:
    """Every model, sorted by prefix. Blocking; raises Transient."""

    def looked_at(prefix: str) -> Row | OtherHub:
        try:
            return row_of(read_state(hub, prefix))
        except OtherHub as exc:
            return exc

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        found = list(pool.map(looked_at, hub.prefixes()))
    return Contents(
        models=[each for each in found if not isinstance(each, OtherHub)],
        others=sorted({each.hub for each in found if isinstance(each, OtherHub)}),
    )


def row_of(state: PrefixState) -> Row:
    """One prefix. `state`: verified, unverified, incomplete or damaged; `reason`: what is amiss."""
    catalog = state.current
    plain = {each.key: each.size_bytes for each in state.plain}
    found: Row = {
        "prefix": state.prefix,
        "state": "verified",
        "verified": catalog is not None,
        "reason": None,
        "format": None,
        "size_bytes": sum(plain.values()),
        "stored_bytes": sum(each.size_bytes for each in state.stored.values()),
        "files": len(plain),
        "digest": None,
        "digests": [each.catalog.digest for each in state.pushed],
        "pushed_at": None,
        "licence": None,
        "upstream": None,
        "revision": None,
    }
    if catalog is not None:
        upstream = catalog.upstream
        return found | {
            "format": catalog.facts.format,
            "size_bytes": catalog.size_bytes,
            "files": len(catalog.files),
            "digest": catalog.digest,
            "pushed_at": catalog.pushed_at,
            "licence": catalog.licence,
            "upstream": upstream.repository if upstream else None,
            "revision": upstream.revision if upstream else None,
        }
    if state.damaged:
        return found | {"state": "damaged", "reason": next(iter(state.damaged.values()))}
    if not plain and not state.pushes:
        return found | {"state": "incomplete", "reason": "it holds no file"}
    if state.pushes:
        reason = "its first push is under way, or was cut off; push again, or remove it"
        return found | {"state": "incomplete", "reason": reason}
    return found | {"state": "unverified"} | _judged(state.prefix, plain)


def _judged(prefix: str, sizes: dict[str, int]) -> Row:
    try:
        return {"format": str(choose(sizes, Wish(where=prefix)).format)}
    except XgenError as exc:
        return {"reason": str(exc)}
