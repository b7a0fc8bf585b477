"""The parameters of requests: those of our own paths, and those that we take off on the way."""

from typing import TypeVar
from urllib.parse import parse_qsl, unquote_plus

import msgspec
from starlette.types import Scope

from reconciler.proxy import errors
from reconciler.proxy.errors import Problem

T = TypeVar("T")


def read_query(scope: Scope, shape: type[T]) -> T | Problem:
    """The query as `shape`, a msgspec struct; of a parameter that stands twice the last counts.

    An unknown parameter is a mistake worth telling.
    """
    pairs = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    try:
        return msgspec.convert(pairs, type=shape, strict=False)
    except msgspec.ValidationError as exc:
        return errors.bad_query(str(exc))


def take_parameter(query: bytes, name: str) -> tuple[bytes, str | None]:
    """The query without the parameter, the rest as it was, and the parameter's last value."""
    if not query:
        return query, None
    kept, taken = [], None
    for part in query.split(b"&"):
        key, _, value = part.decode("latin-1").partition("=")
        if unquote_plus(key) == name:
            taken = unquote_plus(value)
        else:
            kept.append(part)
    return b"&".join(kept), taken
