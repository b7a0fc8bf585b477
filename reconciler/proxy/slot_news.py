"""Hears from peers that are full when they have room, while somebody waits here for a slot."""

import asyncio
from urllib.parse import quote

import aiohttp
import msgspec
import structlog
from yarl import URL

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy import guard, outgoing
from reconciler.proxy.board import Routes
from reconciler.proxy.forward import Upstream
from reconciler.proxy.outgoing import Attempt
from reconciler.proxy.peers import load
from reconciler.proxy.peers.load import ModelLoad
from reconciler.proxy.peers.side import ClusterSide
from reconciler.proxy.relay import beginning
from reconciler.proxy.replicas import Ranking, Replicas, has_slot
from reconciler.proxy.turns import Turns

_WAIT_SECONDS = 5.0
_ANSWER_SECONDS = 5.0
"""Beyond that."""
_PAUSE_SECONDS = 0.05
_PAUSE_AFTER_FAILURE_SECONDS = 2.0
"""Agents of older releases cannot be asked, and one may have no replica any more; the others'
followers find out."""
_MOST_ASKED = 8
"""Peers, for one model."""

log = structlog.get_logger()


class _Told(msgspec.Struct):
    load: str


class SlotNews:
    """For one event loop; closed with the application."""

    def __init__(
        self,
        routes: Routes,
        upstream: Upstream,
        cluster: ClusterSide,
        replicas: Replicas,
        turns: Turns,
    ) -> None:
        self._routes = routes
        self._upstream = upstream
        self._cluster = cluster
        self._replicas = replicas
        self._turns = turns
        self._asking: dict[tuple[Address, ModelName], asyncio.Task[None]] = {}

    def ask(self, model: ModelName, ranking: Ranking) -> None:
        """Those of the best that have no slot. Whoever waits looks around at their answers."""
        full = [each.candidate for each in ranking.admitted if not has_slot(each.candidate)]
        for candidate in full[:_MOST_ASKED]:
            if (address := candidate.address) is not None and (address, model) not in self._asking:
                asking = self._ask(address, candidate.node, model)
                task = asyncio.create_task(asking, name=f"slot:{model}")
                self._asking[address, model] = task

    async def close(self) -> None:
        tasks = tuple(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, address: Address, node: str, model: ModelName) -> None:
        try:
            await self._hear(address, node, model)
        finally:
            del self._asking[address, model]

    async def _hear(self, address: Address, node: str, model: ModelName) -> None:
        try:
            async with asyncio.timeout(_WAIT_SECONDS + _ANSWER_SECONDS):
                told = await self._answer(address, node, model)
        except (aiohttp.ClientError, TimeoutError) as exc:
            log.debug("a peer does not say when it has room", peer=node, cause=str(exc))
            told = b""
        figures = read(told)
        if figures is None:
            await asyncio.sleep(_PAUSE_AFTER_FAILURE_SECONDS)
            return
        self._replicas.heard(model, address, figures)
        self._turns.look_around(model)
        await asyncio.sleep(_PAUSE_SECONDS)

    async def _answer(self, address: Address, node: str, model: ModelName) -> bytes:
        own = self._routes.current().status.node
        marks = guard.marks(node=own, token=self._cluster.token)
        named = f"model={quote(model, safe='')}&wait={_WAIT_SECONDS:g}"
        response = await outgoing.request(
            self._upstream.peers,
            "GET",
            URL(f"http://{address}/api/cluster/slot?{named}", encoded=True),
            [
                *((name.decode(), value.decode()) for name, value in marks),
                ("x-target-server", node),
                ("accept-encoding", "identity"),
            ],
            None,
            Attempt(),
        )
        try:
            return await beginning(response)
        finally:
            response.close()


def read(body: bytes) -> ModelLoad | None:
    """How busy the model is there, of an answer. None: it does not say."""
    try:
        told = msgspec.json.decode(body, type=_Told)
    except (msgspec.DecodeError, RecursionError):
        return None
    return load.decode(told.load.encode("latin-1", "replace"))
