"""Candidates for rankings: some, any, and those of an explanation."""

from collections.abc import Mapping, Sequence
from typing import Any

from hypothesis import strategies as st

from reconciler.plan.ids import NodeName
from reconciler.plan.peering import Address
from reconciler.proxy.balance import Candidate, Scored
from reconciler.proxy.breaker import Standing
from reconciler.proxy.peers.load import ModelLoad


def candidate(name: str, *, in_flight: int = 0, here: bool = False, **more: Any) -> Candidate:
    return Candidate(
        **{
            "node": NodeName(name),
            "address": None if here else Address(host=name, port=8080),
            "load": ModelLoad(in_flight=in_flight),
            "slots": 8,
            **more,
        }
    )


def names(ranked: Sequence[Scored]) -> list[str]:
    return [each.candidate.node for each in ranked]


def of_explanation(explanation: Mapping[str, Any]) -> list[Candidate]:
    return [_explained(figures) for figures in explanation["candidates"]]


def _explained(figures: Mapping[str, Any]) -> Candidate:
    rest = dict(figures)
    for derived in ("score", "why", "admitted", "has_slot"):
        rest.pop(derived, None)
    load = {name: rest.pop(name) for name in ("in_flight", "waiting", "queued", "kv_usage")}
    address = rest.pop("address")
    host, _, port = (address or "").rpartition(":")
    return Candidate(
        address=Address(host=host, port=int(port)) if address else None,
        load=ModelLoad(**load),
        breaker=Standing(rest.pop("breaker")),
        **rest,
    )


_counts = st.integers(min_value=0, max_value=40)
_seconds = st.floats(min_value=0, max_value=100)


def _loads() -> st.SearchStrategy[ModelLoad]:
    return st.builds(
        ModelLoad,
        in_flight=_counts,
        waiting=_counts,
        queued=st.none() | _counts,
        kv_usage=st.none() | st.floats(min_value=0, max_value=1),
    )


@st.composite
def fleets(draw: st.DrawFn, *, most: int = 6) -> list[Candidate]:
    """Any figures, known and unknown; nodes that differ, of which the first may be this one."""
    count = draw(st.integers(min_value=1, max_value=most))
    own = draw(st.booleans())
    return [
        Candidate(
            node=NodeName(f"node-{number}"),
            address=None if own and number == 0 else Address(host=f"10.0.0.{number}", port=8080),
            load=draw(_loads()),
            unreported=draw(st.integers(min_value=-5, max_value=20)),
            slots=draw(st.none() | st.integers(min_value=1, max_value=64)),
            gpu_free_bytes=draw(st.none() | st.integers(min_value=0, max_value=2**37)),
            first_byte_seconds=draw(st.none() | _seconds),
            serving_seconds=draw(st.none() | _seconds),
            breaker=draw(st.sampled_from(Standing)),
            pause_seconds=draw(_seconds),
        )
        for number in range(count)
    ]
