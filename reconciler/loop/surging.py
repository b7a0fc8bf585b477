"""What a surge hangs on beside the manifest, as far as it decides who gets which GPUs."""

from collections.abc import Collection, Iterator
from copy import copy

from reconciler.loop.barring import totals_of
from reconciler.loop.books import Books
from reconciler.loop.gpus import Changes
from reconciler.loop.observation import Look, Looks, Seen, is_run_by, seen_of
from reconciler.plan.barred import is_barred
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.ids import Instance, ModelName


class Surges:
    """Kept by the loop alone: for whom the plan has found no memory on GPUs to spare."""

    def __init__(self) -> None:
        self._cramped: frozenset[tuple[ModelName, Instance]] = frozenset()

    def copy(self) -> "Surges":
        return copy(self)

    def note(self, staying: Collection[tuple[ModelName, Instance]]) -> bool:
        """Whether a plan tells of one that was not known."""
        known = self._cramped
        self._cramped = known | frozenset(staying)
        return self._cramped != known

    def changes(self, looks: Looks, seen: Seen, roll: Roll | None, books: Books) -> Changes:
        """Of the models that run something. Known for as long as the same instance is wanted."""
        changing = dict(_changing(looks, seen))
        wanted = {(name, instance) for name, look in changing.items() if (instance := look.wanted)}
        self._cramped &= wanted
        totals = totals_of(roll)
        cramped = {name for name, _ in self._cramped}
        staying = {
            name
            for name, look in changing.items()
            if look.claim.devices
            and (
                name in cramped or is_barred(look.desired, seen_of(name, seen, look, books), totals)
            )
        }
        return Changes(
            outdated=frozenset(
                view.nonce
                for name, look in changing.items()
                for view in seen.views[name]
                if view.instance.spec_hash == look.desired.spec_hash and not is_run_by(look, view)
            ),
            staying=frozenset(staying),
        )


def _changing(looks: Looks, seen: Seen) -> Iterator[tuple[ModelName, Look]]:
    for name, views in seen.views.items():
        look = looks.get(name)
        if look is not None and not all(is_run_by(look, view) for view in views):
            yield name, look
