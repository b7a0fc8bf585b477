"""One request on its way to one replica, and the answer on its way back."""

from collections.abc import Callable
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote

import aiohttp
import structlog
from starlette.types import Scope, Send

from reconciler.metrics import ResendCause, UpstreamFault
from reconciler.plan.peering import Address
from reconciler.proxy import errors, forward, guard, headers, relay, unready
from reconciler.proxy.body import Peek
from reconciler.proxy.breaker import Outcome, outcome_of
from reconciler.proxy.engine_paths import EnginePath
from reconciler.proxy.errors import NOT_STARTED, UNANSWERED, Header, Problem
from reconciler.proxy.forward import Call
from reconciler.proxy.gateway import Gateway
from reconciler.proxy.heartbeat import Heartbeat
from reconciler.proxy.inflight import Request
from reconciler.proxy.intake import Body
from reconciler.proxy.outgoing import Attempt
from reconciler.proxy.peers import load
from reconciler.proxy.relay import BackendLostMidway, Client
from reconciler.proxy.route_table import Choice, Remote
from reconciler.proxy.spool import Form
from reconciler.proxy.visits import Visit
from reconciler.request_series import RequestWatch

_LATER_THAN_PEERS = 1.5
"""How much later than a node of its own a stream from a peer gets a heartbeat from here: the peer
sends some itself, and two are one too many."""

_REFUSALS = (404, 421, 429, 503)

log = structlog.get_logger()


@dataclass(slots=True, kw_only=True)
class Asked:
    """One request as it was read. `query`: without the parameter `model`. `alone`: no other node
    may answer it. `extra`: headers that its answer is to have, whoever gives it. `waited_seconds`:
    for a turn, here and before it came."""

    scope: Scope
    send: Send
    watch: RequestWatch
    path: EnginePath
    body: Body | Form
    peek: Peek
    query: bytes
    extra: list[Header]
    alone: bool = False
    waited_seconds: float = 0.0

    @property
    def may_stream(self) -> bool:
        return self.peek.stream and self.path.streams

    @property
    def routed(self) -> bool:
        """A peer has passed it on, and wants to know how busy we are."""
        return self.alone and guard.is_routed(self.scope)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Nothing was passed on. `at`: where; None: on this node. `cause`: why another replica may be
    asked; None: none may, something came back. `problem`: the answer where none is."""

    at: Address | None
    cause: ResendCause | None
    problem: Problem


class Delivery:
    def __init__(self, gateway: Gateway, asked: Asked) -> None:
        self._gateway = gateway
        self._asked = asked
        self._request_id: bytes = asked.scope["state"]["request_id"]
        self._is_renamed = False

    async def to_backend(
        self, choice: Choice, request: Request, visit: Visit | None
    ) -> Failure | None:
        """None: it is answered. `visit`: None: nobody compares this replica with others."""
        asked, gateway, attempt = self._asked, self._gateway, Attempt()
        name, endpoint = choice.route.name, choice.endpoint
        assert endpoint is not None
        if choice.renamed:
            self._rename(name)
        served_by = choice.route.served_by
        asked.watch.at_model(gateway.metrics.of_model(name))
        heartbeat = Heartbeat(
            asked.send,
            seconds=gateway.heartbeat_seconds,
            may_begin=(lambda: attempt.under_way) if asked.may_stream else None,
            head=lambda: relay.stream_head(served_by, asked.extra),
        )
        request.heartbeat = heartbeat
        client = self._client(name, heartbeat, served_by, request)
        async with heartbeat:
            call = Call(
                at=f"{endpoint.host}:{endpoint.port}",
                target=self._target(asked.query),
                headers=headers.to_backend(
                    asked.scope["headers"], request_id=self._request_id, api_key=endpoint.api_key
                ),
                body=asked.body.outgoing(),
            )
            response = await self._reach_backend(name, call, attempt)
            del call
            if not isinstance(response, Failure):
                asked.body.drop()  # an answer may take an hour
                await self._relay(response, client, visit)
                return None
            if visit is not None:
                visit.came(Outcome.FAILED)
            if not await heartbeat.stop_beginning():
                return response
            asked.body.drop()
            asked.watch.code = response.problem.status
            await relay.fail(response.problem, client)
            return None

    async def to_peer(
        self, choice: Choice, remote: Remote, visit: Visit, *, may_resend: Callable[[], bool]
    ) -> Failure | None:
        """None: it is answered. Its stream begins when the peer's does: until then the peer may
        still say that it takes no more."""
        asked, gateway, name = self._asked, self._gateway, choice.name
        if choice.renamed:
            self._rename(name)
        heartbeat = Heartbeat(
            asked.send,
            seconds=gateway.heartbeat_seconds * _LATER_THAN_PEERS,
            may_begin=None,
            head=dict,
        )
        async with heartbeat:
            response = await self._reach_peer(choice, remote)
            if isinstance(response, Failure):
                visit.came(Outcome.FAILED)
                return response
            given = [(key.lower(), value) for key, value in response.raw_headers]
            told = headers.first(given, load.HEADER)
            if told is not None and (figures := load.decode(told)) is not None:
                gateway.replicas.heard(name, remote.peer.address, figures)
            cause = _why_elsewhere(response.status, given)
            if cause is not None and may_resend():
                response.close()
                if cause is ResendCause.LOST:
                    visit.came(Outcome.FAILED)
                return Failure(
                    at=remote.peer.address,
                    cause=cause,
                    problem=unready.peer_refused(name, str(remote.peer.node), response.status),
                )
            served_by = headers.first(given, b"x-served-by")
            if served_by is None:
                served_by = f"{remote.peer.node}/{name}".encode()
            asked.watch.at_model(gateway.metrics.elsewhere(name, str(remote.peer.node)))
            asked.body.drop()
            client = self._client(name, heartbeat, served_by, visit, peer=str(remote.peer.node))
            await self._relay(response, client, visit)
            return None

    def _client(
        self,
        name: str,
        heartbeat: Heartbeat,
        served_by: bytes,
        request: Request | Visit,
        *,
        peer: str | None = None,
    ) -> Client:
        asked = self._asked
        return Client(
            send=asked.send,
            heartbeat=heartbeat,
            served_by=served_by,
            model=name,
            errors=asked.path.errors,
            request=request,
            request_id=self._request_id,
            on_first_byte=asked.watch.first_byte,
            peer=peer,
            extra=asked.extra,
        )

    async def _reach_backend(
        self, name: str, call: Call, attempt: Attempt
    ) -> aiohttp.ClientResponse | Failure:
        metrics = self._gateway.metrics
        try:
            return await self._gateway.upstream.send(call, attempt)
        except forward.BackendUnreachable as exc:
            metrics.count_upstream(UpstreamFault.UNREACHABLE)
            log.warning("backend unreachable", model=name, cause=str(exc))
            cause: ResendCause | None = ResendCause.UNREACHABLE
            problem = errors.backend_unreachable(name)
        except forward.BackendLost as exc:
            metrics.count_upstream(UpstreamFault.LOST)
            log.warning("backend lost before its answer", model=name, cause=str(exc))
            problem = errors.backend_lost(name, heard=exc.heard)
            cause = None if exc.heard else ResendCause.LOST
        return Failure(at=None, cause=cause, problem=problem)

    async def _reach_peer(self, choice: Choice, remote: Remote) -> aiohttp.ClientResponse | Failure:
        gateway, name, node = self._gateway, choice.name, str(remote.peer.node)
        address = remote.peer.address
        try:
            return await gateway.upstream.send(self._call_to(choice, remote), Attempt())
        except forward.BackendUnreachable as exc:
            gateway.metrics.count_upstream(UpstreamFault.PEER_UNREACHABLE)
            log.warning("peer unreachable", model=name, peer=node, cause=str(exc))
            gateway.replicas.failed(address, str(exc))
            cause: ResendCause | None = ResendCause.UNREACHABLE
            problem = unready.peer_unreachable(name, node)
        except forward.BackendLost as exc:
            gateway.metrics.count_upstream(UpstreamFault.PEER_LOST)
            log.warning("peer lost before its answer", model=name, peer=node, cause=str(exc))
            gateway.replicas.failed(address, str(exc))
            problem = unready.peer_lost(name, node)
            cause = None if exc.heard else ResendCause.LOST
        return Failure(at=address, cause=cause, problem=problem)

    def _call_to(self, choice: Choice, remote: Remote) -> Call:
        """The peer shall mean the same model as we do, also where the body says none; and it shall
        be the one that we mean: its address may be another's by now."""
        asked, node = self._asked, self._gateway.routes.current().status.node
        query = asked.query
        if asked.peek.model is None:
            named = f"model={quote(choice.name, safe='')}".encode()
            query = b"&".join((query, named)) if query else named
        more = [
            (b"x-request-id", self._request_id),
            *guard.marks(node=node, token=self._gateway.cluster.token),
            (b"x-target-server", str(remote.peer.node).encode()),
            *headers.waited(asked.waited_seconds),
        ]
        given = [field for field in asked.scope["headers"] if field[0] != headers.DEBUG]
        return Call(
            at=str(remote.peer.address),
            target=self._target(query),
            headers=headers.to_peer(given, more),
            body=asked.body.outgoing(),
        )

    async def _relay(
        self, response: aiohttp.ClientResponse, client: Client, visit: Visit | None
    ) -> None:
        asked = self._asked
        asked.watch.code = response.status
        is_error = response.status >= HTTPStatus.BAD_REQUEST
        client.request.is_work = asked.path.computes and not is_error
        if asked.routed:
            asked.extra.append(self._gateway.load_of(client.model))
        if visit is not None:
            retry_after = "retry-after" in response.headers
            visit.came(outcome_of(response.status, retry_after=retry_after))
            if not is_error:
                client.on_first_byte = _both(asked.watch.first_byte, visit.first_byte)
        try:
            await relay.relay(response, client)
        except BackendLostMidway as exc:
            away = visit is not None and visit.address is not None
            fault = UpstreamFault.PEER_LOST_MIDWAY if away else UpstreamFault.LOST_MIDWAY
            self._gateway.metrics.count_upstream(fault)
            log.warning("answer lost in its middle", model=client.model, cause=str(exc))
        finally:
            response.close()

    def _rename(self, name: str) -> None:
        """Once: then the span is another one."""
        span = self._asked.peek.span
        if span is not None and not self._is_renamed:
            self._asked.body.rename(span, name)
            self._is_renamed = True

    def _target(self, query: bytes) -> str:
        path = self._asked.path.path
        return f"{path}?{query.decode('latin-1')}" if query else path


def _both(one: Callable[[], None], other: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        one()
        other()

    return call


def _why_elsewhere(status: int, given: list[Header]) -> ResendCause | None:
    """NOT_STARTED: the peer takes none, has the model no more, or is another node than we thought.
    LOST: its backend broke off before a byte of the answer. None: it has answered."""
    if status in _REFUSALS and headers.first(given, NOT_STARTED[0]) == NOT_STARTED[1]:
        return ResendCause.NOT_STARTED
    if status == HTTPStatus.BAD_GATEWAY and headers.first(given, UNANSWERED[0]) == UNANSWERED[1]:
        return ResendCause.LOST
    return None
