"""Requests that backends are working on, counted in every path.

kubeai#9: a request that was cancelled went on counting as load.
"""

import asyncio
from collections import Counter

from reconciler.plan.ids import ModelName, Nonce


class Traffic:
    """Counts per process and per model; waits for a process to be idle. For one event loop."""

    def __init__(self) -> None:
        self._by_nonce: Counter[Nonce] = Counter()
        self._by_model: Counter[ModelName] = Counter()
        self._idle: dict[Nonce, asyncio.Event] = {}

    def in_flight(self, nonce: Nonce) -> int:
        return self._by_nonce[nonce]

    def of_model(self, model: ModelName) -> int:
        """Over all processes of the model, those that take no new work included."""
        return self._by_model[model]

    @property
    def total(self) -> int:
        return self._by_nonce.total()

    async def wait_idle(self, nonce: Nonce) -> None:
        """Return once nothing is in flight at this process.

        The caller first takes its endpoint out of the status, so that nothing new comes.
        """
        while self._by_nonce[nonce]:
            await self._idle.setdefault(nonce, asyncio.Event()).wait()

    def request(self, model: ModelName, nonce: Nonce) -> "Request":
        return Request(self, model, nonce)

    def take(self, model: ModelName, nonce: Nonce) -> None:
        self._by_nonce[nonce] += 1
        self._by_model[model] += 1

    def drop(self, model: ModelName, nonce: Nonce) -> None:
        self._by_nonce[nonce] -= 1
        self._by_model[model] -= 1
        if not self._by_model[model]:
            del self._by_model[model]
        if not self._by_nonce[nonce]:
            del self._by_nonce[nonce]
            if idle := self._idle.pop(nonce, None):
                idle.set()


class Request:
    """`with`: in flight. A class of its own, because @contextmanager takes some times as long."""

    __slots__ = ("_model", "_nonce", "_traffic")

    def __init__(self, traffic: Traffic, model: ModelName, nonce: Nonce) -> None:
        self._traffic = traffic
        self._model = model
        self._nonce = nonce

    def __enter__(self) -> None:
        self._traffic.take(self._model, self._nonce)

    def __exit__(self, *_: object) -> None:
        self._traffic.drop(self._model, self._nonce)
