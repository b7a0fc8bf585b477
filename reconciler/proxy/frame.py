"""What every answer has: `X-Request-Id`, `X-Served-By`, OpenAI's shape when we fail, and the end of
its connection while the node drains."""

import random
import re

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bind_contextvars

from reconciler.proxy import error_shape, errors, headers, reply
from reconciler.proxy.board import StatusReader
from reconciler.proxy.error_shape import ErrorShape

_ID = re.compile(rb"[\x21-\x7e]{1,128}")

log = structlog.get_logger()


class Frame:
    """ASGI middleware, the outermost one. Wraps `send` only, and leaves the task as it is.

    Answers for the server, too, what it could not read as a request: `refused` in the state, which
    is there from the start or comes while the application reads the body.
    """

    def __init__(self, app: ASGIApp, board: StatusReader) -> None:
        self._app = app
        self._board = board

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(scope)
        scope.setdefault("state", {})["request_id"] = request_id
        # The server runs each request in a context of its own, so nothing has to be taken back.
        bind_contextvars(request_id=request_id.decode())
        started = False

        async def send_framed(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                self._frame(message, request_id, scope["path"])
                await send(message)
                started = True
            else:
                await send(message)

        try:
            if "refused" not in scope["state"]:
                await self._app(scope, receive, send_framed)
        except Exception:
            log.exception("request failed", path=scope["path"])
            if not started:
                await reply.send_problem(scope, send_framed, errors.internal(request_id.decode()))
        refused = scope["state"].get("refused")
        if refused is not None and not started:
            await reply.send_problem(scope, send_framed, refused)

    def _frame(self, message: Message, request_id: bytes, path: str) -> None:
        added = [(b"x-request-id", request_id)]
        if error_shape.of_path(path) is ErrorShape.ANTHROPIC:
            added.append((b"request-id", request_id))  # the one that Anthropic's clients read
        status = self._board.current()
        if headers.first(message["headers"], b"x-served-by") is None:
            added.append((b"x-served-by", status.node.encode()))
        if status.draining:  # a kept connection leads here, whatever load balancers know by now
            added.append(errors.CLOSE)
        message["headers"] = [*message["headers"], *added]


def _request_id(scope: Scope) -> bytes:
    """The client's, where it can be passed on and logged as it is; else one of ours."""
    given = headers.first(scope["headers"], b"x-request-id")
    if given is not None and _ID.fullmatch(given):
        return given
    return b"%032x" % random.getrandbits(128)
