"""Which models an agent leaves running when it ends with `--on-exit leave` (R9)."""

from collections.abc import Mapping, Sequence

from reconciler.apply.backends import BackendView
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State


def staying(views: Mapping[ModelName, Sequence[BackendView]]) -> dict[ModelName, State]:
    """Each with its state; not those whose end was under way before the agent's."""
    return {
        name: State.LOADED if any(view.loaded_at is not None for view in kept) else State.LOADING
        for name, each in views.items()
        if (kept := [view for view in each if not view.stopping])
    }
