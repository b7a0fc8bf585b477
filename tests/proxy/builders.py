"""Statuses to route by, with defaults, and a board that holds one."""

from dataclasses import dataclass, replace

from reconciler.plan.desired import ModelType
from reconciler.plan.ids import ModelName, NodeName, Nonce
from reconciler.plan.phase import State
from reconciler.status import Endpoint, ModelStatus, Status

KEY = "backend-key"


def endpoint(port: int, *, nonce: str = "n1") -> Endpoint:
    return Endpoint(nonce=Nonce(nonce), host="127.0.0.1", port=port, api_key=KEY)


def model(
    name: str = "llm",
    *,
    type: ModelType = ModelType.LLM,
    state: State | None = None,
    reason: str = "as told",
    aliases: tuple[str, ...] = (),
    port: int | None = None,
    retry_at: str | None = None,
) -> ModelStatus:
    """Loaded when it has a port, else loading."""
    return ModelStatus(
        name=ModelName(name),
        type=type,
        state=state or (State.LOADED if port else State.LOADING),
        reason=reason,
        aliases=aliases,
        endpoint=endpoint(port, nonce=f"nonce-of-{name}") if port else None,
        retry_at=retry_at,
    )


def status(*models: ModelStatus, draining: bool = False, ready: bool = True) -> Status:
    return Status(
        node=NodeName("node-a"),
        pod_name="pod-a",
        pod_ip="10.1.2.3",
        models=models,
        draining=draining,
        ready=ready,
    )


@dataclass
class Board:
    """What the loop publishes to."""

    now: Status

    def current(self) -> Status:
        return self.now

    def set(self, *models: ModelStatus) -> None:
        self.now = replace(self.now, models=models, version=self.now.version + 1)
