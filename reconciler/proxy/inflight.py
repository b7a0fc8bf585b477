"""Requests that backends are working on, counted in every path, and how far their answers are.

kubeai#9: a request that was cancelled went on counting as load.
"""

import asyncio
from collections import Counter
from collections.abc import Collection

from reconciler.plan.ids import ModelName, Nonce
from reconciler.proxy.heartbeat import Heartbeat


class Traffic:
    """Counts per process and per model; waits for a process to be idle. For one event loop."""

    def __init__(self) -> None:
        self._by_nonce: dict[Nonce, set[Request]] = {}
        self._by_model: Counter[ModelName] = Counter()
        self._relayed: Counter[Nonce] = Counter()
        """Of requests that have ended."""
        self._idle: dict[Nonce, asyncio.Event] = {}

    def in_flight(self, nonce: Nonce) -> int:
        return len(self._by_nonce.get(nonce, ()))

    def awaited(self, nonce: Nonce) -> int:
        """Those whose next byte is the engine's to give, and not their own client's to take."""
        return sum(not request.waits_for_client for request in self._by_nonce.get(nonce, ()))

    def relayed_bytes(self, nonce: Nonce) -> int:
        """Of answers that took its engine's work; it only grows."""
        now = sum(request.work_bytes for request in self._by_nonce.get(nonce, ()))
        return self._relayed[nonce] + now

    def of_model(self, model: ModelName) -> int:
        """Over all processes of the model, those that take no new work included."""
        return self._by_model[model]

    @property
    def total(self) -> int:
        return self._by_model.total()

    def keep_only(self, nonces: Collection[Nonce]) -> None:
        """Forget how far answers of processes came that are gone."""
        for gone in self._relayed.keys() - set(nonces):
            del self._relayed[gone]

    async def wait_idle(self, nonce: Nonce) -> None:
        """Return once nothing is in flight at this process.

        The caller first takes its endpoint out of the status, so that nothing new comes.
        """
        while nonce in self._by_nonce:
            await self._idle.setdefault(nonce, asyncio.Event()).wait()

    def request(self, model: ModelName, nonce: Nonce) -> "Request":
        return Request(self, model, nonce)

    def take(self, request: "Request") -> None:
        self._by_model[request.model] += 1
        requests = self._by_nonce.get(request.nonce)
        if requests is None:
            self._by_nonce[request.nonce] = {request}
        else:
            requests.add(request)

    def drop(self, request: "Request") -> None:
        nonce, model = request.nonce, request.model
        self._by_model[model] -= 1
        if not self._by_model[model]:
            del self._by_model[model]
        if work_bytes := request.work_bytes:
            self._relayed[nonce] += work_bytes
        requests = self._by_nonce[nonce]
        requests.remove(request)
        if not requests:
            del self._by_nonce[nonce]
            if idle := self._idle.pop(nonce, None):
                idle.set()


class Request:
    """`with`: in flight. A class of its own, because @contextmanager takes some times as long.

    `relayed_bytes`: of the engine's answer, its comments left out. `is_work`: the answer shows that
    its engine works: no error, and of a path that its model has to do with. `heartbeat`: its way to
    the client, once there is one.
    """

    __slots__ = ("_traffic", "heartbeat", "is_work", "model", "nonce", "relayed_bytes")

    def __init__(self, traffic: Traffic, model: ModelName, nonce: Nonce) -> None:
        self._traffic = traffic
        self.model = model
        self.nonce = nonce
        self.relayed_bytes = 0
        self.is_work = False
        self.heartbeat: Heartbeat | None = None

    @property
    def work_bytes(self) -> int:
        return self.relayed_bytes if self.is_work else 0

    @property
    def waits_for_client(self) -> bool:
        return self.heartbeat is not None and self.heartbeat.sending

    def __enter__(self) -> "Request":
        self._traffic.take(self)
        return self

    def __exit__(self, *_: object) -> None:
        self._traffic.drop(self)
