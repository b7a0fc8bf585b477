"""How busy the models of this node are: what the view shows and what rides on answers to peers."""

from typing import Protocol

from reconciler.plan.ids import ModelName
from reconciler.proxy.inflight import Traffic
from reconciler.proxy.peers.load import ModelLoad
from reconciler.proxy.turns import Turns


class EngineFigures(Protocol):
    """What the engines said of themselves lately. None: not known."""

    def queued(self, model: ModelName) -> int | None: ...

    def kv_usage(self, model: ModelName) -> float | None: ...


class LocalLoads:
    """Nothing here waits, and no engine is asked."""

    def __init__(self, traffic: Traffic, turns: Turns, engines: EngineFigures) -> None:
        self._traffic = traffic
        self._turns = turns
        self._engines = engines

    def figures(self, model: ModelName) -> ModelLoad:
        return ModelLoad(
            in_flight=self._traffic.of_model(model),
            waiting=self._turns.waiting(model),
            queued=self._engines.queued(model),
            kv_usage=self._engines.kv_usage(model),
        )


class _Untold:
    def queued(self, model: ModelName) -> int | None:
        return None

    def kv_usage(self, model: ModelName) -> float | None:
        return None


UNTOLD: EngineFigures = _Untold()
"""Of engines that nobody looks at."""
