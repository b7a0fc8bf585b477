"""Imports from Hugging Face into the hub that the settings name.

<data-dir>/jobs/       the jobs of the agent
<data-dir>/imports/    a folder for each import that is under way, or has failed and may go on
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import msgspec

from reconciler.cache.choose import Wish, choose_for_import
from reconciler.cache.names import check_paths
from reconciler.errors import Rejected
from reconciler.hub.huggingface import Imported, ImportOrder, Judgement, Steps, import_model
from reconciler.hub.staging import discard_unheld
from reconciler.jobs.imports import Imports, Listener
from reconciler.jobs.job import Ask, Job
from reconciler.jobs.store import JobStore
from reconciler.node.describe import describe
from reconciler.node.hub import make_writer
from reconciler.plan.desired import Format
from reconciler.plan.repository import Repository
from reconciler.settings import HubSettings

Json = dict[str, object]


class HubImports:
    """Does the work of the jobs. `environment`: the agent's own, with HF_TOKEN and the like.

    `patience_seconds`: for another process that imports the same; None: as long as it takes.
    """

    def __init__(
        self,
        hub: HubSettings,
        data_dir: Path,
        environment: Mapping[str, str],
        *,
        patience_seconds: float | None = None,
    ) -> None:
        self._patience_seconds = patience_seconds
        self._hub = hub
        self._folder = data_dir / "imports"
        self._environment = environment

    def run(self, ask: Ask, steps: Steps) -> Imported:
        """Blocking. Raises Rejected or Transient."""
        if not self._hub.location:
            raise no_hub(ask)
        hub = make_writer(self._hub, self._hub.location)
        try:
            return import_model(hub, self._order(ask), steps)
        finally:
            hub.close()

    def discard(self, ask: Ask) -> None:
        discard_unheld(self._folder / ask.id)  # `hub import` may go on with it meanwhile

    def _order(self, ask: Ask) -> ImportOrder:
        prefix = ask.prefix
        wish = Wish(where=prefix, file=ask.file, format=ask.format)
        return ImportOrder(
            repository=ask.repository,
            prefix=prefix,
            folder=self._folder / ask.id,
            pushed_at=_now(),
            judgement=Judgement(
                choose=lambda sizes: choose_for_import(sizes, wish),
                check_names=partial(check_paths, doing="import"),
                describe=lambda files: describe(files, str(ask.repository)),
            ),
            environment=self._environment,
            refresh=ask.refresh,
            patience_seconds=self._patience_seconds,
        )


def make_imports(
    hub: HubSettings, data_dir: Path, environment: Mapping[str, str], listener: Listener
) -> Imports:
    work = HubImports(hub, data_dir, environment)
    return Imports(JobStore(data_dir / "jobs"), work, listener, now=_now)


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


def no_hub(ask: Ask) -> Rejected:
    return Rejected(
        f"cannot import {ask.repository}: no hub is set, and imports go through it; "
        "give --hub, a directory or s3://BUCKET"
    )


def _told(job: Job) -> Json:
    told: Json = msgspec.to_builtins(job)
    del told["version"]
    left, rate = job.total_bytes - job.done_bytes, job.bytes_per_second
    return told | {"seconds_left": left // rate if rate else None}


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
