"""How an error looks to the clients of a path (PURE).

Anthropic's: https://platform.claude.com/docs/en/api/errors.
"""

import re
from collections.abc import Mapping
from enum import StrEnum

import msgspec

from reconciler.proxy import errors
from reconciler.proxy.errors import Problem

_ANTHROPIC_TYPES: Mapping[int, str] = {
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    502: "api_error",
    503: "overloaded_error",
}
"""Of our statuses; the rest are the request's fault."""

_ANTHROPIC_PATH = re.compile(r"(?:/api/inference)?/v1/messages(?:/|\Z)")


class ErrorShape(StrEnum):
    OPENAI = "openai"
    ANTHROPIC = "anthropic"


def of_path(path: str) -> ErrorShape:
    """For whoever asks for that path, of ours or of an engine, whether or not there is one."""
    return ErrorShape.ANTHROPIC if _ANTHROPIC_PATH.match(path) else ErrorShape.OPENAI


def whole(shape: ErrorShape, problem: Problem, request_id: bytes) -> bytes:
    """The body of an answer."""
    if shape is ErrorShape.OPENAI:
        return errors.as_json(problem)
    kind = _ANTHROPIC_TYPES.get(problem.status, "invalid_request_error")
    return msgspec.json.encode(
        {
            "type": "error",
            "error": {"type": kind, "message": problem.message},
            "request_id": request_id.decode(),
        }
    )


def event(shape: ErrorShape, data: bytes) -> bytes:
    """An event of a stream, for an error in JSON of any layout."""
    name = b"event: error\n" if shape is ErrorShape.ANTHROPIC else b""
    lines = b"".join(b"data: %b\n" % line for line in data.splitlines())
    return name + lines + b"\n"
