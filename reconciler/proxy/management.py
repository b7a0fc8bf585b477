"""`/api/management`: what operators look up of a node, and what they ask of it.

Reading is open to whoever reaches the port; what changes anything is for clients on this host,
until there are keys (design §9).
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from reconciler.attempt import Attempt
from reconciler.errors import Rejected, Transient
from reconciler.events import Journal
from reconciler.plan.ids import ModelName
from reconciler.proxy import errors, management_view, reply
from reconciler.proxy.access import asker, why_not_allowed
from reconciler.proxy.as_of import Beats
from reconciler.proxy.board import Routes
from reconciler.proxy.client import ClientLeft, read_body
from reconciler.proxy.errors import Problem
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.rehearsal import Rehearsals
from reconciler.status import JUST_STARTED, ModelStatus, Planned

_BODY_BYTES = 64 * 1024
_TAKEN_UP_SECONDS = 5.0
"""For the loop to take a command up. It ticks at once, but reads the disk while it does."""


class Commands(Protocol):
    """Noted at once, carried out by the loop (R1)."""

    async def reconcile(
        self, *, retry: bool, model: ModelName | None, asked_by: str
    ) -> Mapping[ModelName, str | None]:
        """The models whose failure was forgiven, each with why it is not tried; None: it is."""
        ...


class Orders(Protocol):
    """Carried out by the loop (R1). What came of it, as a sentence; Rejected or Transient."""

    async def suspend(
        self, model: ModelName | None, *, by: str, reason: str, until: str | None
    ) -> str: ...
    async def resume(self, model: ModelName | None, *, by: str) -> str: ...
    async def confirm(self, revision: str, *, by: str) -> str: ...
    async def hurry(self, *, by: str) -> str: ...


class PlanReader(Protocol):
    def planned(self) -> Planned | None: ...


class LogReader(Protocol):
    """`last` first, then `more` again and again: what came since, or nothing."""

    async def last(self, lines: int) -> bytes: ...
    async def more(self) -> bytes: ...


class Logs(Protocol):
    def open(self, model: ModelName) -> LogReader: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Management:
    """What the agent gives to operators. `attempts`: what came of each revision, the oldest first.
    `ending`: set when its HTTP side ends."""

    commands: Commands
    orders: Orders
    plans: PlanReader
    rehearsals: Rehearsals
    logs: Logs
    journal: Journal
    attempts: Callable[[], tuple[Attempt, ...]]
    ending: asyncio.Event


class Models:
    """`GET /api/management/models`."""

    def __init__(self, routes: Routes, traffic: Traffic, pulse: Beats) -> None:
        self._routes = routes
        self._traffic = traffic
        self._pulse = pulse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = self._routes.current().status
        if status.unknown_because == JUST_STARTED:  # an empty list would be taken for the truth
            await reply.send_problem(scope, send, errors.node_starting(JUST_STARTED))
        else:
            body = management_view.models(status, self._traffic, self._pulse.beat())
            await reply.send_json(send, body)


class Model:
    """`GET /api/management/models/{name}`; an alias names its model."""

    def __init__(self, routes: Routes, traffic: Traffic, pulse: Beats) -> None:
        self._routes = routes
        self._traffic = traffic
        self._pulse = pulse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        model = find(self._routes, scope["path_params"]["name"])
        if isinstance(model, Problem):
            await reply.send_problem(scope, send, model)
        else:
            body = management_view.one(model, self._traffic, self._pulse.beat())
            await reply.send_json(send, body)


class Plan:
    """`GET /api/management/plan`: the newest tick's."""

    def __init__(self, plans: PlanReader, routes: Routes) -> None:
        self._plans = plans
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        node = self._routes.current().status.node
        await reply.send_json(send, management_view.plan(self._plans.planned(), node))


class History:
    """`GET /api/management/history`: what came of the last revisions, the newest first."""

    def __init__(self, management: Management, routes: Routes) -> None:
        self._attempts = management.attempts
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        node = self._routes.current().status.node
        await reply.send_json(send, management_view.history(self._attempts(), node))


class _Ask(msgspec.Struct, forbid_unknown_fields=True):
    retry: bool = False
    model: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    confirm: Annotated[str, msgspec.Meta(min_length=7, max_length=200)] | None = None
    now: bool = False
    by: Annotated[str, msgspec.Meta(max_length=200)] = ""


class Reconcile:
    """`POST /api/management/reconcile`: look again now; `retry`: lift blocks and backoff (R7).
    `confirm`: let a revision stop what it stops; `now`: wait for no maintenance window."""

    def __init__(self, commands: Commands, orders: Orders, routes: Routes) -> None:
        self._commands = commands
        self._orders = orders
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer_command(scope, send, self._answer(scope, receive))

    async def _answer(self, scope: Scope, receive: Receive) -> object | Problem:
        if (refusal := why_not_allowed(scope)) is not None:
            return refusal
        ask = await self._read(scope, receive)
        if isinstance(ask, Problem):
            return ask
        if self._routes.current().status.draining:
            return errors.draining(self._routes.current().status.node)
        name = None
        if ask.model is not None:
            model = find(self._routes, ask.model)
            if isinstance(model, Problem):
                return model
            name = model.name
        told = await self._order(ask, ask.by or asker(scope))
        if isinstance(told, Problem):
            return told
        try:
            async with asyncio.timeout(_TAKEN_UP_SECONDS):
                retried = await self._commands.reconcile(
                    retry=ask.retry, model=name, asked_by=asker(scope)
                )
        except TimeoutError:
            return errors.loop_is_busy(_TAKEN_UP_SECONDS)
        node = self._routes.current().status.node
        told += [f"{name} is not tried: {why}" for name, why in retried.items() if why]
        tried = [name for name, why in retried.items() if not why]
        return {"api": 1, "node": node, "retried": tried, "said": told}

    async def _order(self, ask: _Ask, by: str) -> list[str] | Problem:
        """What came of the orders that last."""
        told = []
        if ask.confirm is not None:
            confirmed = await said(self._orders.confirm(ask.confirm, by=by))
            if isinstance(confirmed, Problem):
                return confirmed
            told.append(confirmed)
        if ask.now:
            hurried = await said(self._orders.hurry(by=by))
            if isinstance(hurried, Problem):
                return hurried
            told.append(hurried)
        return told

    async def _read(self, scope: Scope, receive: Receive) -> _Ask | Problem:
        body = await read_body(receive, scope["headers"], limit_bytes=_BODY_BYTES)
        if isinstance(body, Problem):
            return body
        try:
            return msgspec.json.decode(body.strip() or b"{}", type=_Ask)
        except msgspec.DecodeError as exc:
            return errors.bad_body(str(exc))


async def said(giving: Awaitable[str]) -> str | Problem:
    """What came of an order, once it was carried out."""
    try:
        async with asyncio.timeout(_TAKEN_UP_SECONDS):
            return await giving
    except TimeoutError:
        return errors.loop_is_busy(_TAKEN_UP_SECONDS)
    except Rejected as exc:
        return Problem(status=409, code="cannot_be_done", message=str(exc))
    except Transient as exc:
        return Problem(
            status=503,
            code="not_on_disk",
            message=f"nothing was changed: {exc}",
            headers=(errors.COME_SOON,),
        )


async def answer_command(
    scope: Scope, send: Send, answering: Awaitable[object | Problem], *, status: int = 200
) -> None:
    """With what came of it, unless nobody waits for that any more."""
    try:
        answer = await answering
    except ClientLeft:
        return
    if isinstance(answer, Problem):
        await reply.send_problem(scope, send, answer)
    else:
        await reply.send_json(send, answer, status=status)


def find(routes: Routes, name: str) -> ModelStatus | Problem:
    table = routes.current()
    if (model := table.here.get(name)) is not None:
        return model
    if table.status.unknown_because is not None:
        return errors.node_starting(table.status.unknown_because)
    return errors.no_such_model(name, tuple(sorted(table.here)))
