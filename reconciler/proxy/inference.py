"""The inference paths: read the request, then send it where it belongs."""

from dataclasses import replace

from starlette.types import Receive, Scope, Send

from reconciler.proxy import errors, headers, reply
from reconciler.proxy.client import ClientLeft, WhileClientStays
from reconciler.proxy.delivery import Asked
from reconciler.proxy.dispatch import Dispatch
from reconciler.proxy.engine_paths import EnginePath
from reconciler.proxy.errors import Header, Problem
from reconciler.proxy.gateway import Gateway
from reconciler.proxy.guard import is_routed
from reconciler.proxy.query import take_parameter
from reconciler.request_series import CLIENT_LEFT, RequestWatch


class Inference:
    """POST of one engine path, whatever our own path to it is."""

    def __init__(self, gateway: Gateway, path: EnginePath) -> None:
        self._gateway = gateway
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = self._gateway.metrics.watch_request()
        extra: list[Header] = []
        try:
            problem = await self._answer(scope, receive, send, watch, extra)
            if problem is not None:
                watch.code = problem.status
                served_by = self._gateway.served_by(problem.model)
                problem = replace(problem, headers=(*problem.headers, *extra))
                await reply.send_problem(scope, send, problem, served_by=served_by)
        except ClientLeft:
            watch.code = CLIENT_LEFT
        finally:
            watch.end()

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, watch: RequestWatch, extra: list[Header]
    ) -> Problem | None:
        """None: it is answered. `extra`: gets headers that its answer is to have."""
        gateway, path, given = self._gateway, self._path, scope["headers"]
        for name, value in given:
            if name == b"content-encoding" and value.lower() not in (b"", b"identity"):
                return errors.compressed_body(value.decode("latin-1"))
        with gateway.spool.form() if path.form else gateway.intake.body() as body:
            problem = await body.read(receive, given)
            if problem is not None:
                return problem
            with WhileClientStays(scope):
                peek = await gateway.peeking.peek(body)
                if isinstance(peek, Problem):
                    return peek
                query, in_query = take_parameter(scope["query_string"], "model")
                asked = Asked(
                    scope=scope,
                    send=send,
                    watch=watch,
                    path=path,
                    body=body,
                    peek=peek,
                    query=query,
                    extra=extra,
                    waited_seconds=headers.waited_seconds(given) if is_routed(scope) else 0.0,
                )
                named = peek.model if peek.model is not None else next(reversed(in_query), None)
                problem = await Dispatch(gateway, asked, named=named).run()
                if problem is not None and asked.routed and problem.model is not None:
                    extra.append(gateway.load_of(problem.model))
                return problem
