"""The work of an import from Hugging Face into the hub that the settings name.

<data-dir>/jobs/       the jobs of the agent
<data-dir>/imports/    a folder for each import that is under way, or has failed and may go on
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from reconciler.cache.choose import Wish, choose_for_import
from reconciler.cache.names import check_paths
from reconciler.hub.huggingface import Imported, ImportOrder, Judgement, Steps, import_model
from reconciler.hub.staging import discard_unheld
from reconciler.jobs.job import Ask
from reconciler.node.describe import describe
from reconciler.node.hub import make_writer
from reconciler.node.import_terms import no_hub, now
from reconciler.settings import HubSettings


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
            pushed_at=now(),
            judgement=Judgement(
                choose=lambda sizes: choose_for_import(sizes, wish),
                check_names=partial(check_paths, doing="import"),
                describe=lambda files: describe(files, str(ask.repository)),
            ),
            environment=self._environment,
            refresh=ask.refresh,
            patience_seconds=self._patience_seconds,
        )
