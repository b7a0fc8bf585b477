"""What runs although no agent does: what it has left, or what has outlived it."""

from collections.abc import Iterator
from pathlib import Path

from reconciler.apply.adoption import adopt
from reconciler.apply.leftovers import find_leftovers
from reconciler.apply.records import Records
from reconciler.errors import Rejected
from reconciler.plan.observed import Leftover


def runs_without_agent(folder: Path) -> Iterator[str]:
    """A line each, by the records of the data folder, and what becomes of it; none where nothing
    runs."""
    records = Records(folder / "spawns")
    try:
        records.names()
    except Rejected as exc:
        yield f"what runs without an agent is not known: {exc}"
        return
    found, _ = records.read()
    if not found:
        return
    findings = find_leftovers(found, records.identity(), records.path)
    for kin in findings.alive:
        taken = adopt(kin, 0.0)
        if kin.leader is not None:
            kin.leader.close()
        fate = f"stops it: {taken.why}" if isinstance(taken, Leftover) else "goes on with it"
        did = "served" if kin.record.loaded else "was loading"
        yield (
            f"pid {taken.pid} ({kin.record.model}, which {did} when its agent ended) still runs; "
            f"the next agent on {folder} {fate}"
        )
    yield from findings.problems
