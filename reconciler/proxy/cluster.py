"""GET endpoints that show the status: the cluster's view and the list of models."""

import asyncio
import time
import zlib
from dataclasses import replace
from typing import Annotated, NamedTuple
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Receive, Scope, Send

from reconciler.plan.desired import ModelType
from reconciler.proxy import (
    cluster_page,
    errors,
    json_text,
    model_list,
    negotiation,
    reply,
    route_table,
    unheard,
)
from reconciler.proxy.board import Routes, StatusReader
from reconciler.proxy.client import ClientLeft, WhileClientStays
from reconciler.proxy.errors import Header
from reconciler.proxy.guard import passage
from reconciler.proxy.peers import problems
from reconciler.proxy.peers.bulletin import MOST_WAIT_SECONDS, Bulletin, Known
from reconciler.proxy.peers.revisions import by_revision
from reconciler.proxy.peers.shown import UNKNOWN, Shown, how_it_stands
from reconciler.proxy.peers.side import ClusterSide
from reconciler.status import Json, Status

_TURN_SECONDS = 0.005
_MOMENTS = frozenset({"now", "as_of", "loop"})


class Servers:
    """`/api/cluster/servers` and `/cluster`: every node, by what is known of it just now. Nobody is
    asked, so no other node can hold it up."""

    def __init__(self, board: StatusReader, bulletin: Bulletin, cluster: ClusterSide) -> None:
        self._board = board
        self._bulletin = bulletin
        self._cluster = cluster
        self._shown = Shown()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._answer(scope, send, as_page=False)

    async def browsed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`/cluster`: a page for who prefers HTML, as browsers do."""
        as_page = negotiation.prefers_html(scope["headers"])
        await self._answer(scope, send, (b"vary", b"accept"), as_page=as_page)

    async def _answer(self, scope: Scope, send: Send, *extra: Header, as_page: bool) -> None:
        status = self._board.current()
        own = _own(status, self._bulletin, self._cluster)
        edition, parts = await self._parts(status, json_text.encode(own))
        etag = self._tag(own, edition, form="page" if as_page else "json")
        extra = (*extra, (b"etag", etag), (b"cache-control", b"no-cache"))
        if negotiation.has_already(scope["headers"], etag):
            await reply.send_not_modified(send, *extra)
        elif as_page:
            body = await asyncio.to_thread(cluster_page.page, b"".join(parts))
            await reply.send_html(send, body, *extra, *cluster_page.HEADERS)
        else:
            await reply.send_encoded(send, b"".join(parts), *extra)

    def _tag(self, own: Json, edition: int, *, form: str) -> bytes:
        """A weak one: views with the same tag differ in moments and ages only."""
        lasting = {key: value for key, value in own.items() if key not in _MOMENTS}
        check = zlib.crc32(json_text.encode(lasting))
        return f'W/"{self._cluster.agent_id}-{edition}-{check:x}-{form}"'.encode()

    async def _parts(self, status: Status, own: bytes) -> tuple[int, list[bytes]]:
        """With their edition. Others have their turn meanwhile: after a while without a request
        much is new. What one of them has shown anew by then is of no edition that comes."""
        peers = self._cluster.peers.current().all
        nodes = [_Node(status.node, status.pod_ip or "", (own,))]
        now = turn_began = time.monotonic()
        self._shown.keep_only(peers)
        edition = None
        for peer in peers:
            body = self._shown.of(peer, self._cluster.latest(peer.address), now=now)
            nodes.append(_Node(peer.node or UNKNOWN, peer.pod_ip or "", body))
            if time.monotonic() - turn_began >= _TURN_SECONDS:
                before = self._shown.edition
                await asyncio.sleep(0)
                if edition is None and self._shown.edition != before:
                    edition = before
                turn_began = time.monotonic()
        nodes.sort(key=_Node.place)
        rest = {
            "count": len(nodes),
            "self_node": status.node,
            "revisions": by_revision(status, peers),
        }
        parts = [b'{"api":1,"servers":[']
        for number, node in enumerate(nodes):
            parts += [b","] if number else []
            parts += node.body
        parts += [b"],", json_text.encode(rest)[1:]]
        return (self._shown.edition if edition is None else edition), parts


class _Node(NamedTuple):
    node: str
    pod_ip: str
    body: tuple[bytes, ...]

    def place(self) -> tuple[str, str]:
        return self.node, self.pod_ip


class _Waiting(msgspec.Struct):
    """What another agent knows of this one; whatever else it says is of its release."""

    after: int | None = None
    agent: str = ""
    silent: bool = False
    wait: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Self:
    """`/api/cluster/_self`: this node. With `after` it waits for news, for agents alone."""

    def __init__(self, board: StatusReader, bulletin: Bulletin, cluster: ClusterSide) -> None:
        self._board = board
        self._bulletin = bulletin
        self._cluster = cluster

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        pairs = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
        try:
            asked = msgspec.convert(pairs, type=_Waiting, strict=False)
        except msgspec.ValidationError as exc:
            await reply.send_problem(scope, send, errors.bad_query(str(exc)))
            return
        if asked.after is None:
            own = _own(self._board.current(), self._bulletin, self._cluster)
            await reply.send_json(send, own)
        elif self._cluster.token is not None and not passage(scope).proven:
            came = passage(scope).wrong_token
            await reply.send_problem(scope, send, problems.token_refused(came=came))
        else:
            await self._tell(asked.after, asked, scope, send)

    async def _tell(self, after: int, asked: _Waiting, scope: Scope, send: Send) -> None:
        known = Known(
            version=after,
            agent_id=asked.agent,
            silent=asked.silent,
            wait_seconds=min(asked.wait, MOST_WAIT_SECONDS),
        )
        try:
            with WhileClientStays(scope):
                await reply.send_encoded(send, await self._bulletin.answer(known))
        except ClientLeft:
            return


def _own(status: Status, bulletin: Bulletin, cluster: ClusterSide) -> Json:
    """This node's own server object, with what it says of the cluster."""
    status = replace(status, conditions=(*status.conditions, *cluster.conditions()))
    address = cluster.own.shown if cluster.own is not None else None
    stands = how_it_stands(address=address, reachable=True, reason=None, since=None)
    return {**bulletin.server(status), **stands, "heard_seconds": 0.0}


class Models:
    """`/v1/models`; `only`: the type that a path is about."""

    def __init__(self, routes: Routes, only: ModelType | None = None) -> None:
        self._routes = routes
        self._only = only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        table = self._routes.answering(scope)
        because = table.status.unknown_because
        if because is not None and not any(route.away for route in table.routes):
            # an empty list would be taken for the truth
            await reply.send_problem(scope, send, errors.node_starting(because))
        elif not table.routes and (fresh := unheard.lately(table.peers.unheard, time.time())):
            await reply.send_problem(scope, send, unheard.nothing_heard(fresh))
        else:
            await reply.send_json(send, model_list.model_list(table, self._only))


class Model:
    """`/v1/models/{id}`; ids may contain slashes. `only`: the type that a path is about."""

    def __init__(self, routes: Routes, only: ModelType | None = None) -> None:
        self._routes = routes
        self._only = only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name: str = scope["path_params"]["id"]
        table = self._routes.answering(scope)
        entry = model_list.model_entry(table, name, self._only)
        if entry is not None:
            await reply.send_json(send, entry)
        elif self._only is not None and (route := table.by_name.get(name)) is not None:
            problem = errors.not_of_the_type(route, (self._only,))
            await reply.send_problem(scope, send, problem)
        else:
            known = model_list.model_names(table, self._only)
            problem = route_table.not_known(table, name, known, now=time.time())
            await reply.send_problem(scope, send, problem)
