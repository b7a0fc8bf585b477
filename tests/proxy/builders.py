"""Statuses to route by, with defaults, and a board that holds one."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from reconciler.apply.model_log import Logs
from reconciler.attempt import Attempt
from reconciler.errors import XgenError
from reconciler.events import Journal
from reconciler.manifest.problem import Problem
from reconciler.plan.changes import NodeChanges
from reconciler.plan.desired import Affinity, Format, ModelType
from reconciler.plan.ids import ModelName, NodeName, Nonce
from reconciler.plan.phase import State
from reconciler.plan.repository import Repository
from reconciler.proxy.management import Management
from reconciler.pulse import Beat
from reconciler.status import Endpoint, ModelDetail, ModelStatus, Planned, Status

KEY = "backend-key"
NOW = Beat(now="2026-03-01T12:00:01Z", as_of="2026-03-01T12:00:00Z", age_seconds=1.0)


class Steady:
    """A loop that has just ended a tick, or what it is given."""

    def __init__(self, beat: Beat = NOW) -> None:
        self._beat = beat

    def beat(self) -> Beat:
        return self._beat


STEADY = Steady()


def endpoint(port: int, *, nonce: str = "n1", metrics_path: str | None = None) -> Endpoint:
    return Endpoint(
        nonce=Nonce(nonce), host="127.0.0.1", port=port, api_key=KEY, metrics_path=metrics_path
    )


def model(
    name: str = "llm",
    *,
    type: ModelType = ModelType.LLM,
    state: State | None = None,
    reason: str = "as told",
    aliases: tuple[str, ...] = (),
    port: int | None = None,
    retry_at: str | None = None,
    max_in_flight: int | None = None,
    affinity: Affinity = Affinity.NONE,
    metrics_path: str | None = None,
    detail: ModelDetail | None = None,
) -> ModelStatus:
    """Loaded when it has a port, else loading."""
    return ModelStatus(
        name=ModelName(name),
        type=type,
        state=state or (State.LOADED if port else State.LOADING),
        reason=reason,
        aliases=aliases,
        endpoint=endpoint(port, nonce=f"nonce-of-{name}", metrics_path=metrics_path)
        if port
        else None,
        detail=detail or ModelDetail(),
        retry_at=retry_at,
        max_in_flight=max_in_flight,
        affinity=affinity,
    )


def status(
    *models: ModelStatus, draining: bool = False, ready: bool = True, node: str = "node-a"
) -> Status:
    return Status(
        node=NodeName(node),
        pod_name=node.replace("node", "pod"),
        pod_ip="10.1.2.3",
        models=models,
        draining=draining,
        ready=ready,
    )


@dataclass
class Board:
    """What the loop publishes to."""

    now: Status
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def current(self) -> Status:
        return self.now

    def set(self, *models: ModelStatus) -> None:
        self.put(replace(self.now, models=models))

    def put(self, status: Status) -> None:
        self.now = replace(status, version=self.now.version + 1)
        self.news.set()
        self.news = asyncio.Event()

    async def newer_than(self, version: int) -> Status:
        while self.now.version <= version:
            await self.news.wait()
        return self.now


@dataclass
class Jobs:
    """Imports as they are told; what is asked for is noted. `refusal`: raised then."""

    told: dict[str, dict[str, object]] = field(default_factory=dict)
    asked: list[tuple[str, str | None, str, bool]] = field(default_factory=list)
    refusal: XgenError | None = None

    def every(self) -> list[dict[str, object]]:
        return list(self.told.values())

    def one(self, job_id: str) -> dict[str, object] | None:
        return self.told.get(job_id)

    def ask(
        self, repository: Repository, *, file: str | None, format: Format, refresh: bool
    ) -> dict[str, object]:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append((str(repository), file, format, refresh))
        return {"id": "new", "state": "pending"}

    def remove(self, job_id: str) -> tuple[dict[str, object], bool] | None:
        job = self.told.pop(job_id, None)
        return None if job is None else (job, job["ended_at"] is not None)


@dataclass
class Listing:
    """What a hub holds, as it is told. `failure`: raised instead."""

    told: dict[str, object] = field(default_factory=lambda: {"hub": "/hub", "models": []})
    failure: XgenError | None = None

    async def listing(self) -> dict[str, object]:
        if self.failure is not None:
            raise self.failure
        return self.told


@dataclass
class Told:
    """What a rehearsal comes to."""

    changes: NodeChanges | None = None
    problems: tuple[Problem, ...] = ()


@dataclass
class Orders:
    """Notes what is ordered. `refusal`: raised instead."""

    given: list[tuple[object, ...]] = field(default_factory=list)
    refusal: XgenError | None = None

    def _note(self, *order: object) -> str:
        if self.refusal is not None:
            raise self.refusal
        self.given.append(order)
        return f"{order[0]} was carried out"

    async def suspend(
        self, model: ModelName | None, *, by: str, reason: str, until: str | None
    ) -> str:
        return self._note("suspend", model, by, reason, until)

    async def resume(self, model: ModelName | None, *, by: str) -> str:
        return self._note("resume", model, by)

    async def confirm(self, revision: str, *, by: str) -> str:
        return self._note("confirm", revision, by)

    async def hurry(self, *, by: str) -> str:
        return self._note("hurry", by)


@dataclass
class Operators:
    """What a node gives to operators: its journal, a folder of logs, commands that are noted."""

    logs: Path = Path("no-logs")
    journal: Journal = field(
        default_factory=lambda: Journal(node=NodeName("node-a"), now=lambda: "t")
    )
    plan: Planned | None = None
    attempts: tuple[Attempt, ...] = ()
    asked: list[tuple[bool, str | None]] = field(default_factory=list)
    forgiven: dict[ModelName, str | None] = field(default_factory=lambda: {ModelName("llm"): None})
    jobs: Jobs = field(default_factory=Jobs)
    hub: Listing = field(default_factory=Listing)
    foretold: Told = field(default_factory=Told)
    rehearsed: list[Mapping[str, bytes] | None] = field(default_factory=list)
    orders: Orders = field(default_factory=Orders)

    def planned(self) -> Planned | None:
        return self.plan

    async def reconcile(
        self, *, retry: bool, model: ModelName | None, asked_by: str
    ) -> Mapping[ModelName, str | None]:
        self.asked.append((retry, model))
        return self.forgiven if retry else {}

    async def rehearse(self, files: Mapping[str, bytes] | None) -> Told:
        self.rehearsed.append(files)
        return self.foretold

    def management(self, *, ending: asyncio.Event) -> Management:
        return Management(
            commands=self,
            orders=self.orders,
            plans=self,
            rehearsals=self,
            logs=Logs(self.logs, lambda: (KEY,)),
            journal=self.journal,
            attempts=lambda: self.attempts,
            ending=ending,
        )
