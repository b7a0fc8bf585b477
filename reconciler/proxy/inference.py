"""The inference paths: read the request, choose its backend, pass its answer on."""

import time
from dataclasses import dataclass
from http import HTTPStatus

import aiohttp
import structlog
from starlette.types import Receive, Scope, Send

from reconciler.metrics import CLIENT_LEFT, Metrics, RequestWatch, UpstreamFault
from reconciler.proxy import errors, forward, headers, relay, reply, route_table
from reconciler.proxy.board import Routes
from reconciler.proxy.body import Peek
from reconciler.proxy.client import ClientLeft, WhileClientStays
from reconciler.proxy.engine_paths import EnginePath
from reconciler.proxy.errors import Problem
from reconciler.proxy.forward import Call, Pieces, Upstream
from reconciler.proxy.heartbeat import Heartbeat
from reconciler.proxy.inflight import Request, Traffic
from reconciler.proxy.intake import Body, Intake
from reconciler.proxy.outgoing import Attempt
from reconciler.proxy.peeking import Peeking
from reconciler.proxy.query import take_parameter
from reconciler.proxy.relay import BackendLostMidway, Client
from reconciler.proxy.route_table import Choice
from reconciler.proxy.spool import Form, Spool
from reconciler.proxy.turns import QueueFull, Turns, WaitedTooLong

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What all inference endpoints share."""

    routes: Routes
    metrics: Metrics
    traffic: Traffic
    upstream: Upstream
    intake: Intake
    spool: Spool
    peeking: Peeking
    turns: Turns
    heartbeat_seconds: float

    def served_by(self, model: str | None) -> bytes:
        node = self.routes.current().status.node
        return (f"{node}/{model}" if model is not None else node).encode()


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
        self.id: bytes = scope["state"]["request_id"]
        self._gateway = gateway
        self._path = path
        self._scope = scope
        self._send = send
        self._watch = watch

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
                return peek if isinstance(peek, Problem) else await self._wait(body, peek)

    async def _wait(self, body: Body | Form, peek: Peek) -> Problem | None:
        """For a turn at the model that is meant."""
        query, in_query = take_parameter(self._scope["query_string"], "model")
        named = peek.model if peek.model is not None else in_query
        choice = self._choose(named)
        if isinstance(choice, Problem):
            return choice
        model, turns = choice.model, self._gateway.turns
        try:
            async with turns.turn(model.name, model.max_in_flight) as waited:
                if waited:
                    choice = self._choose(named)
                if isinstance(choice, Problem):
                    return choice
                # Nothing may be awaited between the choice and the count: a process is stopped
                # once it has no endpoint in the status and nothing in flight.
                traffic = self._gateway.traffic
                with traffic.request(choice.model.name, choice.endpoint.nonce) as request:
                    return await self._forward(choice, request, body, peek, query)
        except QueueFull:
            return errors.queue_full(model.name, turns.queue_length)
        except WaitedTooLong:
            return errors.waited_too_long(model.name, turns.wait_seconds)

    def _choose(self, named: str | None) -> Choice | Problem:
        """A refusal, too, is counted with the model that it is about."""
        table, now = self._gateway.routes.current(), time.time()
        choice = route_table.choose(table, named, self._path.types, now=now)
        model = choice.model if isinstance(choice, Problem) else choice.model.name
        if model is not None:
            self._watch.about(self._gateway.metrics.of_model(model))
        return choice

    async def _forward(
        self, choice: Choice, request: Request, body: Body | Form, peek: Peek, query: bytes
    ) -> Problem | None:
        name, attempt = choice.model.name, Attempt()
        may_stream = peek.stream and self._path.streams
        if choice.renamed and peek.span is not None:
            body.rename(peek.span, name)
        served_by = self._gateway.served_by(name)
        self._watch.at_model(self._gateway.metrics.of_model(name))
        heartbeat = Heartbeat(
            self._send,
            seconds=self._gateway.heartbeat_seconds,
            may_begin=(lambda: attempt.under_way) if may_stream else None,
            head=lambda: relay.stream_head(served_by),
        )
        request.heartbeat = heartbeat
        client = Client(
            send=self._send,
            heartbeat=heartbeat,
            served_by=served_by,
            model=name,
            errors=self._path.errors,
            request=request,
            request_id=self.id,
            on_first_byte=self._watch.first_byte,
        )
        async with heartbeat:
            call = self._call(choice, body.outgoing(), query)
            response = await self._reach(name, call, attempt)
            del call
            body.drop()  # an answer may take an hour
            if not isinstance(response, Problem):
                await self._relay(response, client)
            elif await heartbeat.stop_beginning():
                self._watch.code = response.status
                await relay.fail(response, client)
            else:
                return response
        return None

    async def _reach(
        self, name: str, call: Call, attempt: Attempt
    ) -> aiohttp.ClientResponse | Problem:
        metrics = self._gateway.metrics
        try:
            return await self._gateway.upstream.send(call, attempt)
        except forward.BackendUnreachable as exc:
            metrics.count_upstream(UpstreamFault.UNREACHABLE)
            log.warning("backend unreachable", model=name, cause=str(exc))
            return errors.backend_unreachable(name)
        except forward.BackendLost as exc:
            metrics.count_upstream(UpstreamFault.LOST)
            log.warning("backend lost before its answer", model=name, cause=str(exc))
            return errors.backend_lost(name)

    async def _relay(self, response: aiohttp.ClientResponse, client: Client) -> None:
        self._watch.code = response.status
        client.request.is_work = self._path.computes and response.status < HTTPStatus.BAD_REQUEST
        try:
            await relay.relay(response, client)
        except BackendLostMidway as exc:
            self._gateway.metrics.count_upstream(UpstreamFault.LOST_MIDWAY)
            log.warning("backend lost in mid-answer", model=client.model, cause=str(exc))
        finally:
            response.close()

    def _call(self, choice: Choice, body: bytes | Pieces, query: bytes) -> Call:
        target = self._path.path
        return Call(
            endpoint=choice.endpoint,
            target=f"{target}?{query.decode('latin-1')}" if query else target,
            headers=headers.to_backend(
                self._scope["headers"],
                request_id=self.id,
                api_key=choice.endpoint.api_key,
            ),
            body=body,
        )
