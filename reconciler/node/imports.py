"""Imports from Hugging Face into the hub that the settings name.

<data-dir>/jobs/       the jobs of the agent
<data-dir>/imports/    a folder for each import that is under way, or has failed and may go on
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from reconciler.cache.choose import Wish, choose
from reconciler.cache.names import check_paths
from reconciler.errors import Rejected
from reconciler.hub.huggingface import Imported, ImportOrder, Judgement, Steps, import_model
from reconciler.hub.staging import discard
from reconciler.jobs.imports import Imports
from reconciler.jobs.job import Ask
from reconciler.jobs.store import JobStore
from reconciler.node.describe import describe
from reconciler.node.hub import make_writer
from reconciler.settings import HubSettings


class HubImports:
    """Does the work of the jobs. `environment`: the agent's own, with HF_TOKEN and the like."""

    def __init__(self, hub: HubSettings, data_dir: Path, environment: Mapping[str, str]) -> None:
        self._hub = hub
        self._folder = data_dir / "imports"
        self._environment = environment

    def run(self, ask: Ask, steps: Steps) -> Imported:
        """Blocking. Raises Rejected or Transient."""
        if not self._hub.location:
            raise Rejected(
                f"cannot import {ask.repository}: no hub is set, and imports go through it; "
                "give --hub, a directory or s3://BUCKET"
            )
        hub = make_writer(self._hub, self._hub.location)
        try:
            return import_model(hub, self._order(ask), steps)
        finally:
            hub.close()

    def discard(self, ask: Ask) -> None:
        discard(self._folder / ask.id)

    def _order(self, ask: Ask) -> ImportOrder:
        prefix = ask.prefix
        wish = Wish(where=prefix, file=ask.file, format=ask.format)
        return ImportOrder(
            repository=ask.repository,
            prefix=prefix,
            folder=self._folder / ask.id,
            pushed_at=_now(),
            judgement=Judgement(
                choose=lambda sizes: choose(sizes, wish).paths,
                check_names=check_paths,
                describe=lambda files: describe(files, str(ask.repository)),
            ),
            environment=self._environment,
            refresh=ask.refresh,
        )


def make_imports(hub: HubSettings, data_dir: Path, environment: Mapping[str, str]) -> Imports:
    work = HubImports(hub, data_dir, environment)
    return Imports(JobStore(data_dir / "jobs"), work, now=_now)


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
