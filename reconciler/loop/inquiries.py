"""What the hub is asked in the background, as of each plan: one owner of all that asks."""

from collections.abc import Mapping
from dataclasses import dataclass

from reconciler.apply.comparisons import Comparisons
from reconciler.apply.hub_questions import HubQuestions
from reconciler.apply.mendings import Mendings
from reconciler.apply.pushes import Noticed, Pushes
from reconciler.backend.offer import HubSays
from reconciler.loop.books import Books
from reconciler.loop.hub_subjects import damaged, doubts, unfetched, watched, without_backend
from reconciler.loop.observation import Looks, Seen
from reconciler.plan.desired import Desired
from reconciler.plan.ids import ModelName


@dataclass(frozen=True, slots=True, kw_only=True)
class Inquiries:
    """Those who ask."""

    comparisons: Comparisons
    mendings: Mendings
    hints: HubQuestions[str]
    offers: HubQuestions[HubSays]
    pushes: Pushes

    @property
    def noticed(self) -> Mapping[ModelName, Noticed]:
        """Newer pushes."""
        return self.pushes.noticed

    def watch(
        self,
        looks: Looks,
        wanted: Looks,
        seen: Seen,
        books: Books,
        *,
        desired: Desired | None,
    ) -> None:
        """`wanted`: the looks at what the manifest has, where something else is to run."""
        suspended = desired.suspends if desired is not None else lambda _: False
        doubted = doubts(seen, wanted, books)
        self.comparisons.doubt(doubted)
        self.mendings.watch(damaged(wanted, books))
        self.hints.watch(without_backend(looks))
        self.offers.watch(unfetched(looks))
        self.pushes.watch(watched(wanted, doubted, suspended=suspended))

    async def close(self) -> None:
        await self.comparisons.close()
        await self.mendings.close()
        await self.hints.close()
        await self.offers.close()
        await self.pushes.close()
