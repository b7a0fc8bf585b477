"""The inference paths: read the request, then send it where it belongs."""

from dataclasses import replace

from starlette.types import Receive, Scope, Send

from reconciler.proxy import errors, reply
from reconciler.proxy.body import Peek
from reconciler.proxy.client import ClientLeft, WhileClientStays
from reconciler.proxy.delivery import Asked
from reconciler.proxy.dispatch import Dispatch
from reconciler.proxy.engine_paths import EnginePath
from reconciler.proxy.errors import Header, Problem
from reconciler.proxy.gateway import Gateway
from reconciler.proxy.guard import is_routed
from reconciler.proxy.intake import Body
from reconciler.proxy.query import take_parameter
from reconciler.proxy.spool import Form
from reconciler.request_series import CLIENT_LEFT, RequestWatch


class Inference:
    """POST of one engine path, whatever our own path to it is."""

    def __init__(self, gateway: Gateway, path: EnginePath) -> None:
        self._gateway = gateway
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = self._gateway.metrics.watch_request()
        request = _Request(self._gateway, self._path, scope, send, watch)
        try:
            problem = await request.answer(receive)
            if problem is not None:
                watch.code = problem.status
                served_by = self._gateway.served_by(problem.model)
                problem = replace(problem, headers=(*problem.headers, *request.extra(problem)))
                await reply.send_problem(scope, send, problem, served_by=served_by)
        except ClientLeft:
            watch.code = CLIENT_LEFT
        finally:
            watch.end()


class _Request:
    """One request on its way. Each step says what is wrong, or does the next one."""

    def __init__(
        self, gateway: Gateway, path: EnginePath, scope: Scope, send: Send, watch: RequestWatch
    ) -> None:
        self._gateway = gateway
        self._path = path
        self._scope = scope
        self._send = send
        self._watch = watch
        self._asked: Asked | None = None

    async def answer(self, receive: Receive) -> Problem | None:
        given = self._scope["headers"]
        for name, value in given:
            if name == b"content-encoding" and value.lower() not in (b"", b"identity"):
                return errors.compressed_body(value.decode("latin-1"))
        gateway = self._gateway
        with gateway.spool.form() if self._path.form else gateway.intake.body() as body:
            problem = await body.read(receive, given)
            if problem is not None:
                return problem
            with WhileClientStays(self._scope):
                peek = await gateway.peeking.peek(body)
                return peek if isinstance(peek, Problem) else await self._dispatch(body, peek).run()

    def _dispatch(self, body: Body | Form, peek: Peek) -> Dispatch:
        query, in_query = take_parameter(self._scope["query_string"], "model")
        named = peek.model if peek.model is not None else in_query
        self._asked = Asked(
            scope=self._scope,
            send=self._send,
            watch=self._watch,
            path=self._path,
            body=body,
            peek=peek,
            query=query,
        )
        return Dispatch(self._gateway, self._asked, named=named)

    def extra(self, problem: Problem) -> tuple[Header, ...]:
        """What else an answer has that is an error of ours."""
        asked = self._asked
        if asked is None:
            return ()
        if asked.alone and is_routed(self._scope) and problem.model is not None:
            return (*asked.extra, self._gateway.load_of(problem.model))
        return tuple(asked.extra)
