"""`/api/cluster/route`: where a request for a model would go from here now, and why."""

import time

import msgspec
from starlette.types import Receive, Scope, Send

from reconciler.plan.desired import ModelType
from reconciler.proxy import explain, reply, route_table
from reconciler.proxy.affinity_key import SESSION, affinity_key
from reconciler.proxy.board import Routes
from reconciler.proxy.errors import Problem
from reconciler.proxy.query import read_query
from reconciler.proxy.replicas import Replicas, Wish


class _Query(msgspec.Struct, forbid_unknown_fields=True):
    """`session`: as in X-Session-Id. `stream`: streams are timed by themselves."""

    model: str
    session: str | None = None
    stream: bool = True


class RoutePage:
    def __init__(self, routes: Routes, replicas: Replicas) -> None:
        self._routes = routes
        self._replicas = replicas

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = read_query(scope, _Query)
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
            said = [] if query.session is None else [(SESSION, query.session.encode())]
            key = affinity_key(route.affinity, said, None)
            wish = Wish(affinity=route.affinity, key=key, streams=query.stream)
            ranking = self._replicas.ranking(found, wish)
            await reply.send_json(send, explain.whole(table, route, ranking, None))
