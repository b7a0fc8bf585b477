"""The inference paths: read the request, choose its backend, pass its answer on."""

from collections.abc import Mapping
from dataclasses import dataclass

import structlog
from starlette.types import Receive, Scope, Send

from reconciler.metrics import CLIENT_LEFT, Metrics, RequestWatch, UpstreamFault
from reconciler.plan.desired import ModelType
from reconciler.proxy import body as request_body
from reconciler.proxy import errors, forward, headers, reply, route_table
from reconciler.proxy.board import Routes
from reconciler.proxy.client import ClientLeft, WhileClientStays
from reconciler.proxy.errors import Problem
from reconciler.proxy.forward import Call, Upstream
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.intake import Body, Intake
from reconciler.proxy.peeking import Peeking
from reconciler.proxy.query import take_parameter
from reconciler.proxy.route_table import Choice

ENGINE_PATHS: Mapping[str, ModelType] = {
    "/v1/chat/completions": ModelType.LLM,
    "/v1/completions": ModelType.LLM,
    "/v1/embeddings": ModelType.EMBEDDING,
}
"""Paths that are passed to engines, with the type of model that has them."""

NOT_OFFERED_YET = (
    "embed",
    "responses",
    "messages",
    "rerank",
    "score",
    "classify",
    "pooling",
    "tokenize",
    "detokenize",
    "audio/{rest:path}",
    "moderations",
)
"""Paths of engines that are not passed on yet, below /v1 and, as engines have some, without it."""

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What all inference endpoints share."""

    routes: Routes
    metrics: Metrics
    traffic: Traffic
    upstream: Upstream
    intake: Intake
    peeking: Peeking


class Inference:
    """POST of one engine path, whatever our own path to it is."""

    def __init__(self, gateway: Gateway, engine_path: str) -> None:
        self._gateway = gateway
        self._engine_path = engine_path
        self._type = ENGINE_PATHS[engine_path]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        watch = self._gateway.metrics.watch_request()
        try:
            problem = await self._answer(scope, receive, send, watch)
            if problem is not None:
                watch.code = problem.status
                await reply.send_problem(send, problem, served_by=self._served_by(problem.model))
        except ClientLeft:
            watch.code = CLIENT_LEFT
        finally:
            watch.end()

    async def _answer(
        self, scope: Scope, receive: Receive, send: Send, watch: RequestWatch
    ) -> Problem | None:
        encoding = headers.first(scope["headers"], b"content-encoding")
        if encoding is not None and encoding.strip().lower() not in (b"", b"identity"):
            return errors.compressed_body(encoding.decode("latin-1"))
        with self._gateway.intake.body() as body:
            problem = await body.read(receive, scope["headers"])
            if problem is not None:
                return problem
            async with WhileClientStays(receive):
                return await self._route(scope, send, body, watch)

    async def _route(
        self, scope: Scope, send: Send, body: Body, watch: RequestWatch
    ) -> Problem | None:
        peek = await self._gateway.peeking.peek(body)
        if isinstance(peek, Problem):
            return peek
        query, in_query = take_parameter(scope["query_string"], "model")
        named = peek.model if peek.model is not None else in_query
        choice = route_table.choose(self._gateway.routes.current(), named, self._type)
        if isinstance(choice, Problem):
            return choice
        # Nothing may be awaited between the choice and the count: a process is stopped once it
        # has no endpoint in the status and nothing in flight.
        with self._gateway.traffic.request(choice.model.name, choice.endpoint.nonce):
            if choice.renamed and peek.span is not None:
                body.content = request_body.rename(body.content, peek.span, choice.model.name)
            watch.at_model(self._gateway.metrics.of_model(choice.model.name))
            return await self._forward({**scope, "query_string": query}, send, choice, body, watch)

    async def _forward(
        self, scope: Scope, send: Send, choice: Choice, body: Body, watch: RequestWatch
    ) -> Problem | None:
        name = choice.model.name
        try:
            response = await self._gateway.upstream.send(self._call(scope, choice, body.content))
            body.drop()  # an answer may take an hour
        except forward.BackendUnreachable as exc:
            self._gateway.metrics.count_upstream(UpstreamFault.UNREACHABLE)
            log.warning("backend unreachable", model=name, cause=str(exc))
            return errors.backend_unreachable(name)
        except forward.BackendLost as exc:
            self._gateway.metrics.count_upstream(UpstreamFault.LOST)
            log.warning("backend lost before its answer", model=name, cause=str(exc))
            return errors.backend_lost(name)
        watch.code = response.status
        try:
            await forward.relay(
                response,
                send,
                served_by=self._served_by(name),
                model=name,
                on_first_byte=watch.first_byte,
            )
        except forward.BackendLostMidway as exc:
            self._gateway.metrics.count_upstream(UpstreamFault.LOST_MIDWAY)
            log.warning("backend lost in mid-answer", model=name, cause=str(exc))
        finally:
            response.close()
        return None

    def _call(self, scope: Scope, choice: Choice, body: bytes) -> Call:
        return Call(
            endpoint=choice.endpoint,
            target=self._target(scope),
            headers=headers.to_backend(
                scope["headers"],
                request_id=scope["state"]["request_id"],
                api_key=choice.endpoint.api_key,
            ),
            body=body,
        )

    def _target(self, scope: Scope) -> str:
        query: str = scope["query_string"].decode("latin-1")
        return f"{self._engine_path}?{query}" if query else self._engine_path

    def _served_by(self, model: str | None) -> bytes:
        node = self._gateway.routes.current().status.node
        return (f"{node}/{model}" if model is not None else node).encode()
