"""Tells of crash loops and of reversions as events, each once and not again at every tick."""

from collections.abc import Mapping

from reconciler.events import EventKind, Journal, Level
from reconciler.loop.books import Books
from reconciler.loop.reverts import Reversion
from reconciler.plan.ids import FilesDigest, ModelName, SpecHash
from reconciler.plan.retry import told

_Loop = tuple[ModelName, SpecHash, FilesDigest | None]


class Troubles:
    """What was told last."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._loops: set[_Loop] = set()
        self._reverted: dict[ModelName, str] = {}

    def tell(self, books: Books, reversions: Mapping[ModelName, Reversion]) -> None:
        self._tell_loops(books)
        self._tell_reversions(reversions)

    def _tell_loops(self, books: Books) -> None:
        before, self._loops = self._loops, set()
        for model in books.models():
            failure = books.failure(model)
            if failure is None or not failure.is_crash_loop:
                continue
            loop = (model, failure.spec_hash, failure.files_digest)
            self._loops.add(loop)
            if loop not in before:
                self._journal.record(
                    EventKind.CRASH_LOOP,
                    told(failure),
                    model=model,
                    level=Level.WARNING,
                    count=failure.count,
                    during=failure.during,
                    permanent=failure.permanent,
                    spec_hash=failure.spec_hash,
                )

    def _tell_reversions(self, reversions: Mapping[ModelName, Reversion]) -> None:
        before, self._reverted = self._reverted, {}
        for model, reversion in reversions.items():
            self._reverted[model] = reversion.difference
            if before.get(model) != reversion.difference:
                self._journal.record(
                    EventKind.MODEL_REVERTED,
                    reversion.reason,
                    model=model,
                    level=Level.WARNING,
                    spec_hash=reversion.good.spec_hash,
                    instead_of=reversion.wanted.spec_hash,
                )
        for model in before.keys() - reversions.keys():
            reason = "what the manifest wants is tried again, or the model is gone"
            self._journal.record(EventKind.REVERT_ENDED, reason, model=model)
