"""GET endpoints that show the status: the cluster view and the list of models."""

from starlette.types import Receive, Scope, Send

from reconciler.plan.desired import ModelType
from reconciler.proxy import errors, reply, view
from reconciler.proxy.as_of import Beats
from reconciler.proxy.board import Routes, StatusReader
from reconciler.proxy.inflight import Traffic


class Servers:
    """`/api/cluster/servers` and `/cluster`: every node."""

    def __init__(self, board: StatusReader, traffic: Traffic, pulse: Beats) -> None:
        self._board = board
        self._traffic = traffic
        self._pulse = pulse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = view.servers(self._board.current(), self._traffic, self._pulse.beat())
        await reply.send_json(send, body)


class Self:
    """`/api/cluster/_self`: this node."""

    def __init__(self, board: StatusReader, traffic: Traffic, pulse: Beats) -> None:
        self._board = board
        self._traffic = traffic
        self._pulse = pulse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = view.server(self._board.current(), self._traffic, self._pulse.beat())
        await reply.send_json(send, body)


class Models:
    """`/v1/models`; `only`: the type that a path is about."""

    def __init__(self, board: StatusReader, only: ModelType | None = None) -> None:
        self._board = board
        self._only = only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = self._board.current()
        if status.unknown_because is not None:  # an empty list would be taken for the truth
            await reply.send_problem(scope, send, errors.node_starting(status.unknown_because))
        else:
            await reply.send_json(send, view.model_list(status, self._only))


class Model:
    """`/v1/models/{id}`; ids may contain slashes. `only`: the type that a path is about."""

    def __init__(self, routes: Routes, only: ModelType | None = None) -> None:
        self._routes = routes
        self._only = only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        name: str = scope["path_params"]["id"]
        table = self._routes.current()
        entry = view.model_entry(table.status, name, self._only)
        if entry is not None:
            await reply.send_json(send, entry)
        elif self._only is not None and (model := table.by_name.get(name)) is not None:
            problem = errors.not_of_the_type(model, (self._only,))
            await reply.send_problem(scope, send, problem)
        elif (because := table.status.unknown_because) is not None:
            await reply.send_problem(scope, send, errors.node_starting(because))
        else:
            known = view.model_names(table.status, self._only)
            await reply.send_problem(scope, send, errors.unknown_model(name, known))
