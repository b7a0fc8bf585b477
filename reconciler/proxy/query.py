"""The parameters of requests: those of our own paths, and those that we take off on the way."""

from typing import TypeVar
from urllib.parse import parse_qsl, unquote_plus

import msgspec
from starlette.types import ASGIApp, Receive, Scope, Send

from reconciler.proxy import errors, reply
from reconciler.proxy.errors import Problem

T = TypeVar("T")


def read_query(scope: Scope, shape: type[T]) -> T | Problem:
    """The query as `shape`, a msgspec struct.

    An unknown parameter is a mistake worth telling, and so are two values of one.
    """
    pairs = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
    given = dict(pairs)
    for name, value in pairs:
        if given[name] != value:
            return errors.bad_query(f"{name} has two values: {value!r} and {given[name]!r}")
    try:
        return msgspec.convert(given, type=shape, strict=False)
    except msgspec.ValidationError as exc:
        return errors.bad_query(str(exc))


class _Nothing(msgspec.Struct, forbid_unknown_fields=True):
    pass


class WithoutParameters:
    """An endpoint that knows none. `?retry=true` where a body should say so must not look done."""

    def __init__(self, endpoint: ASGIApp) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        query = read_query(scope, _Nothing)
        if isinstance(query, Problem):
            await reply.send_problem(scope, send, query)
        else:
            await self._endpoint(scope, receive, send)


def take_parameter(query: bytes, name: str) -> tuple[bytes, list[str]]:
    """The query without the parameter, the rest as it was, and the parameter's values."""
    kept: list[bytes] = []
    taken: list[str] = []
    if not query:
        return query, taken
    for part in query.split(b"&"):
        key, _, value = part.decode("latin-1").partition("=")
        if unquote_plus(key) == name:
            taken.append(unquote_plus(value))
        else:
            kept.append(part)
    return b"&".join(kept), taken
