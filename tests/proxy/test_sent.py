"""What of ours a peer's figures do not count yet."""

from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.ids import ModelName
from reconciler.plan.peering import Address
from reconciler.proxy.sent import Sent

THERE = (Address(host="10.0.0.1", port=8080), ModelName("m"))


@given(steps=st.lists(st.sampled_from(["begin", "end", "tell", "others"])))
def test_told_and_unreported_together_are_what_is_there(steps: list[str]) -> None:
    sent, ours, theirs, told = Sent(), 0, 0, 0
    for step in steps:
        match step:
            case "begin":
                sent.began(THERE)
                ours += 1
            case "end" if ours:
                sent.ended(THERE)
                ours -= 1
            case "others":
                theirs += 1
            case "tell":
                sent.told(THERE)
                told = ours + theirs
                assert sent.unreported(THERE) == 0
            case _:
                pass
        if step != "others":
            assert told + sent.unreported(THERE) <= ours + theirs
        if not theirs:
            assert told + sent.unreported(THERE) == ours


def test_of_replicas_that_are_gone_only_what_is_under_way_is_kept() -> None:
    sent = Sent()
    sent.began(THERE)
    sent.told(THERE)
    sent.keep_only([])
    assert sent.unreported(THERE) == 1
    sent.ended(THERE)
    assert sent.unreported(THERE) == 0
