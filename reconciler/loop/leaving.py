"""Which models an agent leaves running when it ends (R9): all with `--on-exit leave`; what is
suspended, unless it was told to stop them (`--on-exit stop`)."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from reconciler.apply.backends import BackendView
from reconciler.plan.desired import Desired
from reconciler.plan.ending import Left
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State
from reconciler.plan.suspension import Suspension

Stays = Callable[[ModelName], str | None]
"""Why a model is left running, as a clause (empty: all are); None: it is not."""


def none_stays(_: ModelName) -> str | None:
    return None


def every_stays(_: ModelName) -> str | None:
    return ""


def suspended_stay(desired: Desired | None, suspensions: Iterable[Suspension]) -> Stays:
    """As of now. `suspensions`: by command, where it is not known what is desired."""
    told = tuple(suspensions)

    def stays(model: ModelName) -> str | None:
        if desired is not None:
            by = desired.suspension_of(model) if desired.suspends(model) else None
            is_so = desired.suspends(model)
        else:
            by = next((each for each in told if each.model in (None, model)), None)
            is_so = by is not None
        who = f" {by.who}" if by is not None else ""
        return f", as it is suspended{who}" if is_so else None

    return stays


def staying(
    views: Mapping[ModelName, Sequence[BackendView]], stays: Stays
) -> dict[ModelName, Left]:
    """Without those whose end was under way before the agent's."""
    return {
        name: Left(
            state=State.LOADED
            if any(each.loaded_at is not None for each in kept)
            else State.LOADING,
            processes=frozenset(each.nonce for each in kept),
            why=why,
        )
        for name, every in views.items()
        if (why := stays(name)) is not None
        and (kept := [view for view in every if not view.stopping])
    }
