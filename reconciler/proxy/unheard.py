"""Answers of a node that does not know all others yet, for what they may have (PURE)."""

from collections.abc import Sequence
from datetime import datetime

from reconciler.plan.desired import ModelType
from reconciler.proxy.errors import (
    SHOWN_CHARACTERS,
    SOON_SECONDS,
    UNSURE_SECONDS,
    Problem,
    retry_after,
)
from reconciler.proxy.naming import listed
from reconciler.proxy.peers.peer import Unheard

_SHOWN = 3
"""Nodes in one message."""


def lately(unheard: Sequence[Unheard], now: float) -> tuple[Unheard, ...]:
    """Those that have not been waited for long. `now`: Unix time; clocks may be set back."""
    return tuple(
        each
        for each in unheard
        if abs(now - datetime.fromisoformat(each.since).timestamp()) < UNSURE_SECONDS
    )


def model_unheard(model: str, nodes: tuple[str, ...], unheard: Sequence[Unheard]) -> Problem:
    """It is in the manifest. `nodes`: those that are named for it and are not known."""
    return Problem(
        status=503,
        code="model_not_ready",
        message=f"cannot answer for model {model!r}: the manifest has it for "
        f"{listed(nodes, _SHOWN)}, of which nothing is known yet: {_causes(unheard)}",
        headers=retry_after(SOON_SECONDS),
        model=model,
    )


def name_unheard(name: str, unheard: Sequence[Unheard]) -> Problem:
    """No known node has it; `name` is what a client made up, so it is no model's."""
    return Problem(
        status=503,
        code="model_not_ready",
        message=f"cannot answer for model {name[:SHOWN_CHARACTERS]!r}: it is not known, and not "
        f"all nodes are either: {_causes(unheard)}. {UNSURE_SECONDS:.0f} s after such a node was "
        "first looked for, the name counts as unknown",
        headers=retry_after(SOON_SECONDS),
    )


def type_unheard(types: tuple[ModelType, ...], unheard: Sequence[Unheard]) -> Problem:
    return Problem(
        status=503,
        code="no_model_of_type",
        message=f"cannot route the request: no model of type {' or '.join(types)} is known, and "
        f"not all nodes are either: {_causes(unheard)}",
        headers=retry_after(SOON_SECONDS),
    )


def nothing_heard(unheard: Sequence[Unheard]) -> Problem:
    """Instead of an empty list of models."""
    return Problem(
        status=503,
        code="node_starting",
        message="cannot answer yet: no model is known, and not all nodes are either: "
        f"{_causes(unheard)}",
        headers=retry_after(SOON_SECONDS),
    )


def _causes(unheard: Sequence[Unheard]) -> str:
    return listed([each.cause for each in unheard], _SHOWN, between="; ")
