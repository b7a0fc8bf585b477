"""`/healthz`: the agent works. `/readyz`: traffic may come (latched in the status)."""

from starlette.types import Receive, Scope, Send

from reconciler.proxy import reply
from reconciler.proxy.as_of import Beats, moment, told
from reconciler.proxy.board import StatusReader
from reconciler.status import Json, Status


class Healthz:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await reply.send_json(send, {"status": "ok"})


class Readyz:
    """With the age of what it says. A loop that hangs takes no traffic from what serves."""

    def __init__(self, board: StatusReader, pulse: Beats) -> None:
        self._board = board
        self._pulse = pulse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reason, beat = why_not_ready(self._board.current()), self._pulse.beat()
        body: Json = {"status": "ok" if reason is None else "not ready"}
        if reason is not None:
            body["reason"] = reason
        if beat.silent_since is not None:
            body["warning"] = told(beat)
        status = 200 if reason is None else 503
        await reply.send_json(send, {**body, **moment(beat)}, status=status)


def why_not_ready(status: Status) -> str | None:
    if status.draining:
        return "the node is draining"
    if status.ready:
        return None
    coming = [f"{model.name} ({model.state})" for model in status.models if not model.endpoint]
    return f"waiting for {', '.join(coming)}" if coming else "the first complete read is not done"
