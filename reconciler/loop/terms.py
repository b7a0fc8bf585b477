"""What a load is held to: what it is asked, and how long it may take. It stands in no hash, since
it restarts nothing that serves; a load that failed by it is tried anew when it changes."""

import hashlib

from reconciler.plan.checks import Check
from reconciler.plan.desired import DesiredModel

Terms = tuple[tuple[Check, ...], float, float]


def terms_of(model: DesiredModel) -> Terms:
    return model.checks, model.timeouts.ready, model.timeouts.first_answer


def mark_of(model: DesiredModel) -> str:
    """Short, for a file: another one where the terms are others."""
    return hashlib.sha256(repr(terms_of(model)).encode()).hexdigest()[:16]
