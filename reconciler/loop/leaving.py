"""Which models an agent leaves running when it ends with `--on-exit leave` (R9)."""

from collections.abc import Mapping, Sequence

from reconciler.apply.backends import BackendView
from reconciler.plan.ending import Left
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State


def staying(views: Mapping[ModelName, Sequence[BackendView]]) -> dict[ModelName, Left]:
    """Without those whose end was under way before the agent's."""
    return {
        name: Left(
            state=State.LOADED
            if any(each.loaded_at is not None for each in kept)
            else State.LOADING,
            processes=frozenset(each.nonce for each in kept),
        )
        for name, every in views.items()
        if (kept := [view for view in every if not view.stopping])
    }
