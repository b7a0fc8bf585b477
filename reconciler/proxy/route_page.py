"""`/api/cluster/route`: where a request for a model would go from here now, and why."""

import time
from typing import Annotated

import msgspec
from starlette.types import Receive, Scope, Send

from reconciler.plan.desired import Affinity, ModelType
from reconciler.proxy import errors, explain, reply, route_table
from reconciler.proxy.affinity_key import SESSION, affinity_key
from reconciler.proxy.board import Routes
from reconciler.proxy.errors import Problem
from reconciler.proxy.query import read_query
from reconciler.proxy.replicas import Replicas, Wish


class _Query(msgspec.Struct, forbid_unknown_fields=True):
    """`session`: as in X-Session-Id. `key`: instead, as an answer said it of its request. `stream`:
    streams are timed by themselves."""

    model: str
    session: str | None = None
    key: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{16}\Z")] | None = None
    stream: bool = True


class RoutePage:
    def __init__(self, routes: Routes, replicas: Replicas) -> None:
        self._routes = routes
        self._replicas = replicas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = read_query(scope, _Query)
        if isinstance(query, _Query) and None not in (query.session, query.key):
            query = errors.bad_query("session and key are both given, and either says the place")
        if isinstance(query, Problem):
            await reply.send_problem(scope, send, query)
            return
        table, every = self._routes.current(), tuple(ModelType)
        found = route_table.choose(table, query.model, every, now=time.time())
        route = table.by_name.get(query.model)
        if route is None:
            assert isinstance(found, Problem)
            await reply.send_problem(scope, send, found)
        elif isinstance(found, Problem):
            await reply.send_json(send, explain.whole(table, route, None, found))
        else:
            key = _key(query, route.affinity)
            wish = Wish(affinity=route.affinity, key=key, streams=query.stream)
            ranking = self._replicas.ranking(found, wish)
            await reply.send_json(send, explain.whole(table, route, ranking, None))


def _key(query: _Query, affinity: Affinity) -> bytes | None:
    if affinity is Affinity.NONE:
        return None
    if query.key is not None:
        return bytes.fromhex(query.key)
    said = [] if query.session is None else [(SESSION, query.session.encode())]
    return affinity_key(affinity, said, None)
