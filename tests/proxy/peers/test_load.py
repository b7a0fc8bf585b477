"""Load figures on their way between agents, of this release and others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.proxy.peers.load import IDLE, ModelLoad, decode, encode

_counts = st.integers(min_value=0, max_value=10**6)


@given(
    load=st.builds(
        ModelLoad,
        in_flight=_counts,
        waiting=_counts,
        queued=st.none() | _counts,
        kv_usage=st.none() | st.integers(0, 10_000).map(lambda each: each / 10_000),
    )
)
def test_what_is_sent_arrives(load: ModelLoad) -> None:
    assert decode(encode(load)) == load


@pytest.mark.parametrize(
    ("value", "load"),
    [
        (b"in_flight=0", IDLE),
        (b" in_flight = 3 ; new=x;waiting=2;", ModelLoad(in_flight=3, waiting=2)),
        (b"in_flight=3;in_flight=4", ModelLoad(in_flight=3)),
        (b"in_flight=3;waiting=-1;queued=x;kv_usage=nan", ModelLoad(in_flight=3)),
        (b"in_flight=3;kv_usage=1.7", ModelLoad(in_flight=3, kv_usage=1.0)),
        (b"in_flight=" + b"9" * 99, ModelLoad(in_flight=10**9)),
        (b"", None),
        (b"waiting=3", None),
        (b"in_flight=-3", None),
        (b"in_flight=\xb2", None),
    ],
)
def test_what_others_say_is_read_as_far_as_it_makes_sense(
    value: bytes, load: ModelLoad | None
) -> None:
    assert decode(value) == load


@given(value=st.binary(max_size=80))
def test_nothing_that_comes_is_an_error(value: bytes) -> None:
    decode(value)
    decode(b"in_flight=1;queued=" + value)
    decode(b"in_flight=1;kv_usage=" + value)
