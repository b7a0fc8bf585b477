"""Tells operators what imports do: as events, and in figures."""

import asyncio
import contextlib
from collections.abc import Callable

from reconciler.cache.address import HubAddress, parse_source
from reconciler.errors import Rejected
from reconciler.jobs.job import Ask, Job
from reconciler.jobs.news import News
from reconciler.loop.chronicle import Chronicle
from reconciler.metrics import Metrics
from reconciler.plan.desired import Desired, ModelSpec
from reconciler.plan.ids import ModelName
from reconciler.plan.repository import SCHEME


class ImportReport:
    """For threads; events are recorded on the loop that it is made on.

    `desired`: what this node has to run; None: not known yet.
    """

    def __init__(
        self,
        chronicle: Chronicle,
        metrics: Metrics,
        desired: Callable[[], Desired | None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._chronicle = chronicle
        self._desired = desired
        self.downloaded = metrics.count_imported
        self.uploaded = metrics.count_pushed

    def happened(self, news: News) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody listens any more
            self._loop.call_soon_threadsafe(self._tell, news)

    def _tell(self, news: News) -> None:
        self._chronicle.imported(news, self._model_of(news.job))

    def _model_of(self, job: Job) -> ModelName | None:
        """The one whose files it brings."""
        desired = self._desired()
        models = desired.models if desired is not None else ()
        found = [
            model.name
            for model in models
            if any(_is_of(job, spec) for spec in (model.spec, model.fallback) if spec is not None)
        ]
        return found[0] if len(found) == 1 else None


def _is_of(job: Job, spec: ModelSpec) -> bool:
    if not spec.source.startswith(SCHEME):
        return False
    try:
        address = parse_source(spec.source, spec.file, spec.format)
    except Rejected:
        return False
    if not isinstance(address, HubAddress) or address.repository is None:
        return False
    ask = Ask(repository=address.repository, file=address.file, format=spec.format)
    return ask.id == job.id
