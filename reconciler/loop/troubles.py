"""Tells of crash loops, of reversions and of harmed records as events, each once and not again at
every tick."""

from collections.abc import Mapping

from reconciler.apply.custody import RecordRewritten
from reconciler.events import EventKind, Journal, Level
from reconciler.loop.books import Books
from reconciler.loop.reverts import Reversion
from reconciler.plan import retry
from reconciler.plan.desired import Desired, DesiredModel
from reconciler.plan.ids import FilesDigest, ModelName, SpecHash
from reconciler.plan.observed import Failure
from reconciler.plan.revert import may_revert

_Loop = tuple[ModelName, SpecHash, FilesDigest | None]


class Troubles:
    """What was told last. `books`: as they were read at the start: an agent before this one has
    told of the loops in them."""

    def __init__(self, journal: Journal, books: Books) -> None:
        self._journal = journal
        self._loops = set(_loops(books))
        self._reverted: dict[ModelName, Reversion] = {}

    def tell(
        self,
        books: Books,
        reversions: Mapping[ModelName, Reversion],
        told: Mapping[ModelName, str],
        given: Desired | None,
    ) -> None:
        """`told`: of each model whose last good spec serves or comes. `given`: the manifest's."""
        self._tell_loops(books)
        self._tell_reversions(reversions, told)
        self._tell_ended(reversions, given)

    def record_rewritten(self, rewritten: RecordRewritten) -> None:
        self._journal.record(
            EventKind.RECORD_REWRITTEN,
            rewritten.reason,
            model=rewritten.model,
            level=Level.WARNING,
            pid=rewritten.pid,
        )

    def _tell_loops(self, books: Books) -> None:
        before, now = self._loops, _loops(books)
        self._loops = set(now)
        for loop, failure in now.items():
            if loop not in before:
                self._journal.record(
                    EventKind.CRASH_LOOP,
                    retry.told(failure),
                    model=loop[0],
                    level=Level.WARNING,
                    count=failure.count,
                    during=failure.during,
                    permanent=failure.permanent,
                    spec_hash=failure.spec_hash,
                )

    def _tell_reversions(
        self, reversions: Mapping[ModelName, Reversion], told: Mapping[ModelName, str]
    ) -> None:
        for model in reversions.keys() & told.keys():
            before, now = self._reverted.get(model), reversions[model]
            self._reverted[model] = now
            if before is None or before.difference != now.difference:
                self._journal.record(
                    EventKind.MODEL_REVERTED,
                    told[model],
                    model=model,
                    level=Level.WARNING,
                    spec_hash=now.good.spec_hash,
                    instead_of=now.wanted.spec_hash,
                )

    def _tell_ended(self, reversions: Mapping[ModelName, Reversion], given: Desired | None) -> None:
        wanted = {each.name: each for each in given.models} if given is not None else {}
        for model in self._reverted.keys() - reversions.keys():
            reason = _ended_because(self._reverted.pop(model), wanted.get(model))
            self._journal.record(EventKind.REVERT_ENDED, reason, model=model)


def _loops(books: Books) -> dict[_Loop, Failure]:
    newest = {model: books.failure(model) for model in books.models()}
    return {
        (model, failure.spec_hash, failure.files_digest): failure
        for model, failure in newest.items()
        if failure is not None and failure.is_crash_loop
    }


def _ended_because(reversion: Reversion, wanted: DesiredModel | None) -> str:
    """`wanted`: the model as the manifest has it by now; None: it has gone."""
    if wanted is None:
        return "the model has gone from the manifest"
    if not may_revert(wanted):
        return "by the manifest, its last good spec is not to come back"
    if wanted.spec_hash == reversion.wanted.spec_hash:
        return "what the manifest wants is tried again"
    if wanted.spec_hash == reversion.good.spec_hash:
        return "the manifest has the last good spec again"
    return "the manifest wants another spec by now, and that is tried"
