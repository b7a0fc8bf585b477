"""Whole answers of our own: JSON bodies, text and problems."""

from starlette.types import Scope, Send

from reconciler.proxy import error_shape, json_text
from reconciler.proxy.errors import Header, Problem

TEXT = b"text/plain; charset=utf-8"


async def send_text(send: Send, body: bytes, *, content_type: bytes = TEXT) -> None:
    await _send(send, 200, body, (), content_type)


async def send_json(send: Send, body: object, *, status: int = 200) -> None:
    await _send(send, status, json_text.encode(body), ())


async def send_encoded(send: Send, body: bytes, *headers: Header) -> None:
    """JSON that is encoded already."""
    await _send(send, 200, body, headers)


async def send_html(send: Send, body: bytes, *headers: Header) -> None:
    await _send(send, 200, body, headers, b"text/html; charset=utf-8")


async def send_not_modified(send: Send, *headers: Header) -> None:
    await send({"type": "http.response.start", "status": 304, "headers": list(headers)})
    await send({"type": "http.response.body", "body": b""})


async def send_problem(
    scope: Scope, send: Send, problem: Problem, *, served_by: bytes | None = None
) -> None:
    """In the shape that clients of the path know."""
    shape = error_shape.of_path(scope["path"])
    body = error_shape.whole(shape, problem, scope["state"]["request_id"])
    extra = (
        problem.headers if served_by is None else (*problem.headers, (b"x-served-by", served_by))
    )
    await _send(send, problem.status, body, extra)


async def send_options(send: Send, allowed: str) -> None:
    headers = [(b"allow", allowed.encode())]
    await send({"type": "http.response.start", "status": 204, "headers": headers})
    await send({"type": "http.response.body", "body": b""})


async def _send(
    send: Send,
    status: int,
    body: bytes,
    extra: tuple[Header, ...],
    content_type: bytes = b"application/json",
) -> None:
    headers = [
        (b"content-type", content_type),
        (b"content-length", str(len(body)).encode()),
        *extra,
    ]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
