"""What a peer answers that is asked when it has room."""

import pytest

from reconciler.proxy.peers.load import ModelLoad
from reconciler.proxy.slot_news import read


def test_its_figures_are_read() -> None:
    told = b'{"api": 1, "room": true, "load": "in_flight=1;waiting=2", "more": [1]}'
    assert read(told) == ModelLoad(in_flight=1, waiting=2)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"load": 1}',
        b'{"error": {"code": "model_not_ready"}}',
        b'{"load": "room"}',
        b'{"load": "\xff"}',
        b'{"more": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
    ids=["nothing", "no figures", "a number", "an error", "other words", "no text", "deep"],
)
def test_what_says_no_figures_is_none(body: bytes) -> None:
    assert read(body) is None
