"""Imports from Hugging Face into the hub, as the other parts of the agent have them."""

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec

from reconciler.jobs.imports import Imports, Listener, Result, Steps, Work
from reconciler.jobs.job import Ask, Job
from reconciler.jobs.store import JobStore
from reconciler.node.import_terms import no_hub, now
from reconciler.plan.desired import Format
from reconciler.plan.repository import Repository
from reconciler.settings import HubSettings

Json = dict[str, object]


class _WhenAsked:
    """The work, made with the first import: most of the hub's side, and many an agent has none."""

    def __init__(self, *given: Any) -> None:
        self._given = given

    def run(self, ask: Ask, steps: Steps) -> Result:
        return self._work.run(ask, steps)

    def discard(self, ask: Ask) -> None:
        self._work.discard(ask)

    @cached_property
    def _work(self) -> Work:
        from reconciler.node.import_work import HubImports

        return HubImports(*self._given)


def make_imports(
    hub: HubSettings, data_dir: Path, environment: Mapping[str, str], listener: Listener
) -> Imports:
    work = _WhenAsked(hub, data_dir, environment)
    return Imports(JobStore(data_dir / "jobs"), work, listener, now=now)


class Importer:
    """The jobs, as the cache asks for them."""

    def __init__(self, imports: Imports) -> None:
        self._imports = imports

    def bring(
        self,
        repository: Repository,
        *,
        file: str | None,
        format: Format,
        on_progress: Callable[[int, int], None],
        cancelled: Callable[[], bool],
    ) -> None:
        ask = Ask(repository=repository, file=file, format=format)
        self._imports.bring(ask, on_progress=on_progress, cancelled=cancelled)


class Downloads:
    """The jobs, as HTTP shows them. `hub`: whether there is one."""

    def __init__(self, imports: Imports, *, hub: bool) -> None:
        self._imports = imports
        self._hub = hub

    def every(self) -> list[Json]:
        return [_told(job) for job in self._imports.jobs()]

    def one(self, job_id: str) -> Json | None:
        job = self._imports.get(job_id)
        return None if job is None else _told(job)

    def ask(
        self, repository: Repository, *, file: str | None, format: Format, refresh: bool
    ) -> Json:
        ask = Ask(repository=repository, file=file, format=format, refresh=refresh)
        if not self._hub:
            raise no_hub(ask)
        return _told(self._imports.submit(ask))

    def remove(self, job_id: str) -> tuple[Json, bool] | None:
        removed = self._imports.remove(job_id)
        return None if removed is None else (_told(removed.job), removed.forgotten)


def _told(job: Job) -> Json:
    told: Json = msgspec.to_builtins(job)
    del told["version"]
    left, rate = job.total_bytes - job.done_bytes, job.bytes_per_second
    return told | {"seconds_left": left // rate if rate else None}
