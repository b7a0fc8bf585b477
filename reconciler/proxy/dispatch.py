"""Where a request goes: to this node's replica, which it may have to wait for, or to a peer's.

    choose ──▶ rank ──▶ one with a slot ──────────────────────▶ send ──▶ answered
                 │                                          ▲     │
                 └─▶ all are full: wait here, in the queue ─┘     └─▶ failed: once more, elsewhere

Who waits here takes the first slot that is free, here or at a peer. Without a replica here it does
so for a second, then stands in the queue of the best peer. What was sent is sent once more at most.
"""

import time
from dataclasses import dataclass
from functools import partial

from reconciler.metrics import ResendCause
from reconciler.plan.desired import Affinity
from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy import errors, explain, headers, route_table, unready
from reconciler.proxy.affinity_key import affinity_key
from reconciler.proxy.balance import Scored
from reconciler.proxy.delivery import Asked, Delivery, Failure
from reconciler.proxy.errors import Problem
from reconciler.proxy.gateway import Gateway
from reconciler.proxy.guard import is_for_this_node
from reconciler.proxy.headers import RETRIED
from reconciler.proxy.replicas import HERE, Ranking, Wish
from reconciler.proxy.route_table import Choice, Remote
from reconciler.proxy.turns import QueueFull, WaitedTooLong
from reconciler.proxy.visits import Visit

_ROAM_SECONDS = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _There:
    """The request goes to this peer, where it is counted already."""

    choice: Choice
    remote: Remote
    visit: Visit


class _Anew:
    """Nothing was sent, and what was chosen does not hold any more."""


_ANEW = _Anew()


class _Full:
    """Only peers serve, and none of them has a free slot."""


_FULL = _Full()

_Came = Failure | Problem | _Anew | None
"""None: it is answered."""


class Dispatch:
    """Of one request. `named`: the model, as the client calls it; None: it does not."""

    def __init__(self, gateway: Gateway, asked: Asked, *, named: str | None) -> None:
        self._gateway = gateway
        self._asked = asked
        self._named = named
        self._delivery = Delivery(gateway, asked)
        self._known_wish: Wish | None = None
        self._failure: Failure | None = None
        """Of the first try."""
        self._begun = False
        """It was taken in: an agent that ends waits for it."""
        self._stands = False
        """It has waited long enough for a slot anywhere."""

    async def run(self) -> Problem | None:
        """None: it is answered."""
        choice = self._choose()
        if isinstance(choice, Problem):
            return choice
        self._begun = True
        if choice.route.serving:
            await self._look_for_key(choice)
            came = await self._send()
        else:
            came = await self._here(choice)
        while came is not None:
            if isinstance(came, Problem):
                return came
            if isinstance(came, Failure):
                if came.cause is None or self._failure is not None:
                    return came.problem
                self._failure = came
            came = await self._send()
        return None

    async def _send(self) -> _Came:
        choice, first = self._choose(), self._failure
        if isinstance(choice, Problem):
            return first.problem if first is not None else choice
        if choice.route.serving:
            found = self._pick(choice)
        else:
            found = choice if HERE not in self._tried else None
        if found is None:
            return first.problem if first is not None else self._nobody(choice)
        if isinstance(found, _Full):
            return await self._roam(choice)
        return await (self._there(found) if isinstance(found, _There) else self._here(found))

    def _choose(self) -> Choice | Problem:
        """A refusal, too, is counted with the model that it is about."""
        asked, now = self._asked, time.time()
        routes = self._gateway.routes
        table = routes.current()
        if table.peers.all and is_for_this_node(asked.scope):
            asked.alone, table = True, routes.alone()
        choice = route_table.choose(
            table, self._named, asked.path.types, now=now, begun=self._begun
        )
        model = choice.model if isinstance(choice, Problem) else choice.route.name
        if model is not None:
            asked.watch.about(self._gateway.metrics.of_model(model))
        return choice

    async def _look_for_key(self, choice: Choice) -> None:
        affinity, body, key = choice.route.affinity, self._asked.body, None
        if affinity is not Affinity.NONE:
            find = partial(affinity_key, affinity, self._asked.scope["headers"], body.text())
            key = await self._gateway.peeking.do(find, size=body.size)
        self._known_wish = Wish(affinity=affinity, key=key, streams=self._asked.may_stream)

    @property
    def _wish(self) -> Wish:
        """Without a key, where no other replica was there as the request came."""
        if self._known_wish is None:
            self._known_wish = Wish(streams=self._asked.may_stream)
        return self._known_wish

    @property
    def _tried(self) -> tuple[Address | None, ...]:
        return () if self._failure is None else (self._failure.at,)

    def _pick(self, choice: Choice) -> "_There | _Full | Choice | None":
        """The choice itself: here. None: nowhere."""
        gateway, name = self._gateway, choice.name
        ranking = gateway.replicas.ranking(choice, self._wish, tried=self._tried)
        if not ranking.admitted:
            return None
        here, roams = ranking.at(HERE), choice.endpoint is None and not self._stands
        found = ranking.with_a_slot() or here
        if gateway.turns.waiting(name) and (here is not None or roams):
            gateway.turns.look_around(name)  # whoever came before has the first choice
            found = here
        if found is None and roams:
            return _FULL
        return self._at(choice, ranking, ranking.admitted[0] if found is None else found)

    def _at(self, choice: Choice, ranking: Ranking, found: Scored) -> "_There | Choice":
        self._explain(choice, ranking, found)
        address = found.candidate.address
        if address is HERE:
            return choice
        remote = next(each for each in choice.route.serving if each.peer.address == address)
        return _There(choice=choice, remote=remote, visit=self._begin(choice.name, address))

    def _begin(self, model: ModelName, address: Address | None) -> Visit:
        return self._gateway.visits.begin(model, address, streams=self._asked.may_stream)

    async def _here(self, choice: Choice) -> _Came:
        route = choice.route
        turns, name, own = self._gateway.turns, route.name, route.here
        assert own is not None
        look = partial(self._look, name) if route.serving else None
        try:
            async with turns.turn(
                name, own.max_in_flight, look, wait_seconds=self._wait_seconds
            ) as turn:
                if turn.waited:
                    self._asked.waited_seconds += turn.waited_seconds
                    if isinstance(turn.found, _There):
                        return await self._there(turn.found)
                    again = _ANEW if turn.found is not None else self._choose()
                    if not isinstance(again, Choice):
                        return again
                    if again.endpoint is None or again.name != name:
                        return _ANEW
                    choice = again
                # Nothing may be awaited between the choice and the count: a process is stopped once
                # it has no endpoint in the status and nothing in flight.
                endpoint = choice.endpoint
                assert endpoint is not None
                self._tell_of_resending()
                with self._gateway.traffic.request(name, endpoint.nonce) as request:
                    if not choice.route.serving:
                        return await self._delivery.to_backend(choice, request, None)
                    with self._begin(name, HERE) as visit:
                        return await self._delivery.to_backend(choice, request, visit)
        except QueueFull:
            return errors.queue_full(name, turns.queue_length)
        except WaitedTooLong:
            return errors.waited_too_long(name, turns.wait_seconds)

    async def _roam(self, choice: Choice) -> _Came:
        """Take the first slot that is free at any peer. None has one soon: stand in a queue there,
        where others would come first else, again and again."""
        turns, name = self._gateway.turns, choice.name
        look = partial(self._look, name, roams=True)
        turn = turns.turn(name, 0, look, wait_seconds=min(_ROAM_SECONDS, self._wait_seconds))
        try:
            async with turn:
                self._asked.waited_seconds += turn.waited_seconds
                if isinstance(turn.found, _There):
                    return await self._there(turn.found)
        except QueueFull:
            return errors.queue_full(name, turns.queue_length)
        except WaitedTooLong:
            self._asked.waited_seconds += turn.waited_seconds
            self._stands = True
        return _ANEW

    @property
    def _wait_seconds(self) -> float:
        """That are left for a turn, wherever it has waited for one."""
        return max(self._gateway.turns.wait_seconds - self._asked.waited_seconds, 0.0)

    def _look(self, waits_for: ModelName, *, roams: bool = False) -> "_There | _Anew | None":
        """For a slot at a peer that a request may have which waits here. `roams`: this node has no
        replica."""
        choice = self._choose()
        if isinstance(choice, Problem) or choice.name != waits_for:
            return _ANEW
        if (choice.endpoint is None) is not roams:
            return _ANEW
        ranking = self._gateway.replicas.ranking(choice, self._wish, tried=self._tried)
        found = ranking.with_a_slot_away()
        if found is None:
            self._gateway.slot_news.ask(choice.name, ranking)
            return None
        away = self._at(choice, ranking, found)
        return away if isinstance(away, _There) else None

    async def _there(self, found: _There) -> Failure | None:
        began = time.monotonic()
        self._tell_of_resending()
        try:
            with found.visit as visit:
                came = await self._delivery.to_peer(
                    found.choice,
                    found.remote,
                    visit,
                    may_resend=partial(self._has_another, found.remote.peer.address),
                )
            if came is not None and came.cause is ResendCause.NOT_STARTED:
                self._asked.waited_seconds += time.monotonic() - began
            return came
        finally:
            self._gateway.turns.look_around(found.choice.name)  # a slot is free there

    def _tell_of_resending(self) -> None:
        """It is sent now; where it was sent before, this is the second time."""
        if self._failure is not None:
            assert self._failure.cause is not None
            self._gateway.metrics.count_resent(self._failure.cause)
            self._asked.extra.append(RETRIED)

    def _has_another(self, than: Address) -> bool:
        if self._failure is not None:
            return False
        choice = self._choose()
        if isinstance(choice, Problem):
            return False
        return bool(self._gateway.replicas.ranking(choice, self._wish, tried=(than,)).admitted)

    def _nobody(self, choice: Choice) -> Problem:
        here = choice.endpoint is not None
        return unready.all_pause(choice.name, len(choice.route.serving) + here)

    def _explain(self, choice: Choice, ranking: Ranking, found: Scored) -> None:
        asked = self._asked
        if headers.first(asked.scope["headers"], headers.DEBUG) == b"route":
            kept = [field for field in asked.extra if field[0] != headers.ROUTE]
            asked.extra[:] = [*kept, (headers.ROUTE, explain.in_a_header(choice, ranking, found))]
