"""`POST /api/management/suspend`, `/resume`, and what of `/reconcile` is confirmed: orders that
last. Who gives them is told by himself, and only clients on this host may."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from starlette.types import Receive, Scope, Send

from reconciler.plan.ids import ModelName
from reconciler.proxy import errors
from reconciler.proxy.access import asker, why_not_allowed
from reconciler.proxy.board import Routes
from reconciler.proxy.client import read_body
from reconciler.proxy.errors import Problem
from reconciler.proxy.management import Orders, answer_command, find, said

_BODY_BYTES = 64 * 1024


class _Ask(msgspec.Struct, forbid_unknown_fields=True):
    model: Annotated[str, msgspec.Meta(max_length=1000)] | None = None
    reason: Annotated[str, msgspec.Meta(max_length=500)] = ""
    by: Annotated[str, msgspec.Meta(max_length=200)] = ""
    until: Annotated[str, msgspec.Meta(max_length=100)] | None = None


class Suspend:
    """Nothing is started, stopped or restarted of a model, or on the node, until it is lifted."""

    def __init__(self, orders: Orders, routes: Routes) -> None:
        self._orders = orders
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer_command(scope, send, self._answer(scope, receive))

    async def _answer(self, scope: Scope, receive: Receive) -> object | Problem:
        ask = await _read(scope, receive)
        if isinstance(ask, Problem):
            return ask
        until = _until(ask.until)
        if isinstance(until, Problem):
            return until
        name = None
        if ask.model is not None:
            model = find(self._routes, ask.model)
            if isinstance(model, Problem):
                return model
            name = model.name
        giving = self._orders.suspend(name, by=_by(ask, scope), reason=ask.reason, until=until)
        return _answer_of(self._routes, await said(giving))


class Resume:
    """The other way round; what the manifest suspends is lifted there alone."""

    def __init__(self, orders: Orders, routes: Routes) -> None:
        self._orders = orders
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer_command(scope, send, self._answer(scope, receive))

    async def _answer(self, scope: Scope, receive: Receive) -> object | Problem:
        ask = await _read(scope, receive)
        if isinstance(ask, Problem):
            return ask
        name = None
        if ask.model is not None:
            model = find(self._routes, ask.model)  # one that is gone may be suspended still
            name = ModelName(ask.model) if isinstance(model, Problem) else model.name
        giving = self._orders.resume(name, by=_by(ask, scope))
        return _answer_of(self._routes, await said(giving))


def _answer_of(routes: Routes, told: str | Problem) -> object | Problem:
    if isinstance(told, Problem):
        return told
    return {"api": 1, "node": routes.current().status.node, "said": told}


async def _read(scope: Scope, receive: Receive) -> _Ask | Problem:
    if (refusal := why_not_allowed(scope)) is not None:
        return refusal
    body = await read_body(receive, scope["headers"], limit_bytes=_BODY_BYTES)
    if isinstance(body, Problem):
        return body
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=_Ask)
    except msgspec.DecodeError as exc:
        return errors.bad_body(str(exc))


def _by(ask: _Ask, scope: Scope) -> str:
    return " ".join(ask.by.split()) or asker(scope)


def _until(text: str | None) -> str | Problem | None:
    """RFC 3339, UTC."""
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return errors.bad_body(f"until must be a time such as 2026-12-01T18:00:00Z, not {text!r}")
    if moment.tzinfo is None:
        return errors.bad_body(f"until must tell its time zone, as in {text}Z")
    return moment.astimezone(UTC).isoformat(timespec="seconds")
