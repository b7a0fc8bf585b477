"""`/api/cluster/slot`: answers once this node's replica of a model has room, for other agents."""

import asyncio
import time
from typing import Annotated

import msgspec
from starlette.types import Receive, Scope, Send

from reconciler.plan.desired import ModelType
from reconciler.plan.ids import ModelName
from reconciler.proxy import reply, route_table
from reconciler.proxy.board import Routes
from reconciler.proxy.client import ClientLeft, WhileClientStays
from reconciler.proxy.errors import Problem
from reconciler.proxy.guard import passage
from reconciler.proxy.local_loads import LocalLoads
from reconciler.proxy.peers import load, problems
from reconciler.proxy.peers.side import ClusterSide
from reconciler.proxy.query import read_query
from reconciler.proxy.route_table import Choice
from reconciler.proxy.turns import Turns

MOST_WAIT_SECONDS = 10.0
_MOST_WAITING = 1000
"""Who comes past that is answered at once: anybody who reaches the port may ask."""


class _Query(msgspec.Struct):
    """What else it says is of another release."""

    model: str
    wait: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class SlotPage:
    """Its answer is how busy the model is then, whether there is room or not. Where no request
    would find a replica, it is the error that such a request would get."""

    def __init__(
        self, routes: Routes, turns: Turns, loads: LocalLoads, cluster: ClusterSide
    ) -> None:
        self._routes = routes
        self._turns = turns
        self._loads = loads
        self._cluster = cluster
        self._waiting = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = read_query(scope, _Query)
        if isinstance(query, Problem):
            await reply.send_problem(scope, send, query)
        elif self._cluster.token is not None and not passage(scope).proven:
            came = passage(scope).wrong_token
            await reply.send_problem(scope, send, problems.token_refused(came=came))
        else:
            await self._tell(query.model, query.wait, scope, send)

    async def _tell(self, named: str, wait: float, scope: Scope, send: Send) -> None:
        choice = self._choose(named)
        if isinstance(choice, Problem):
            await reply.send_problem(scope, send, choice)
            return
        seconds = min(wait, MOST_WAIT_SECONDS) if self._waiting < _MOST_WAITING else 0.0
        self._waiting += 1
        try:
            with WhileClientStays(scope):
                await self._until_room(choice.name, seconds)
                choice = self._choose(named)
                if isinstance(choice, Problem):
                    await reply.send_problem(scope, send, choice)
                    return
                told = load.encode(self._loads.figures(choice.name)).decode()
                room = self._turns.has_room(choice.name)
                await reply.send_json(send, {"api": 1, "room": room, "load": told})
        except ClientLeft:
            return
        finally:
            self._waiting -= 1

    def _choose(self, named: str) -> Choice | Problem:
        return route_table.choose(self._routes.alone(), named, tuple(ModelType), now=time.time())

    async def _until_room(self, model: ModelName, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._turns.until_room(model)
        except TimeoutError:
            return
