"""`/healthz`: the agent works. `/readyz`: traffic may come (latched in the status)."""

from starlette.types import Receive, Scope, Send

from reconciler.proxy import reply
from reconciler.proxy.board import StatusReader
from reconciler.status import Status


class Healthz:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await reply.send_json(send, {"status": "ok"})


class Readyz:
    def __init__(self, board: StatusReader) -> None:
        self._board = board

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason = why_not_ready(self._board.current())
        if reason is None:
            await reply.send_json(send, {"status": "ok"})
        else:
            await reply.send_json(send, {"status": "not ready", "reason": reason}, status=503)


def why_not_ready(status: Status) -> str | None:
    if status.draining:
        return "the node is draining"
    if status.ready:
        return None
    coming = [f"{model.name} ({model.state})" for model in status.models if not model.endpoint]
    return f"waiting for {', '.join(coming)}" if coming else "the first complete read is not done"
