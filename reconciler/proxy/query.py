"""The parameters of our own GET paths, checked: an unknown one is a mistake worth telling."""

from typing import TypeVar
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Scope

from reconciler.proxy import errors
from reconciler.proxy.errors import Problem

T = TypeVar("T")


def read_query(scope: Scope, shape: type[T]) -> T | Problem:
    """The query as `shape`, a msgspec struct; of a parameter that stands twice the last counts."""
    pairs = dict(parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True))
    try:
        return msgspec.convert(pairs, type=shape, strict=False)
    except msgspec.ValidationError as exc:
        return errors.bad_query(str(exc))
