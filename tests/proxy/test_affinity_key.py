"""Which requests belong together: by their session, or by how their prompts begin."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.plan.desired import Affinity, JsonValue
from reconciler.proxy.affinity_key import PREFIX_BYTES, affinity_key


def _session(body: bytes | None, *headers: tuple[bytes, bytes]) -> bytes | None:
    return affinity_key(Affinity.SESSION, headers, body)


def _prefix(body: object) -> bytes | None:
    return affinity_key(Affinity.PREFIX, (), json.dumps(body).encode())


def _chat(*texts: str, **more: JsonValue) -> dict[str, JsonValue]:
    messages: list[JsonValue] = [{"role": "user", "content": text} for text in texts]
    return {"model": "m", "messages": messages, **more}


def test_the_session_header_comes_before_the_user() -> None:
    ana, ben = b'{"user":"ana"}', b'{"user":"ben"}'
    named = (b"x-session-id", b"7")
    assert _session(ana, named) == _session(ben, named) == _session(None, named)
    assert len({_session(ana), _session(ben), _session(ana, named)}) == 3
    assert _session(ana) == _session(b'{"messages": [1, 2], "user": "ana", "stream": true}')


@pytest.mark.parametrize(
    "body", [None, b"", b"{", b"[]", b"{}", b'{"user":null}', b'{"user":""}', b"\xff", b"[" * 9999]
)
def test_what_names_no_session_has_no_key(body: bytes | None) -> None:
    assert _session(body) is None
    assert _session(body, (b"x-session-id", b"")) is None


def test_a_prompts_beginning_is_what_counts() -> None:
    common = "You are a helpful assistant. " * 40
    assert len(common) > PREFIX_BYTES
    assert _prefix(_chat(common + "one")) == _prefix(_chat(common + "two", stream=True))
    assert _prefix(_chat("one")) != _prefix(_chat("two"))
    assert _prefix({"prompt": "one"}) != _prefix({"input": "two"})


@pytest.mark.parametrize("body", [{}, {"messages": []}, {"prompt": ""}, {"input": None}, []])
def test_nothing_to_begin_with_has_no_key(body: object) -> None:
    assert _prefix(body) is None


def test_a_conversation_keeps_its_key_as_it_goes_on() -> None:
    opening = "Tell me a story. " * 80
    assert _prefix(_chat(opening)) == _prefix(_chat(opening, "And then?", "Who is she?"))


def test_half_of_an_emoji_does_not_part_a_conversation() -> None:
    """JavaScript writes such halves where it cuts a text."""
    opening = "Tell me a story. " * 80
    assert _prefix(_chat(opening, "\ud83d")) == _prefix(_chat(opening, "And then?"))


def test_without_an_affinity_nothing_is_read() -> None:
    assert affinity_key(Affinity.NONE, [(b"x-session-id", b"7")], b'{"user":"ana"}') is None


_texts = st.text(max_size=30)


@given(
    affinity=st.sampled_from(Affinity),
    headers=st.lists(st.tuples(st.sampled_from([b"x-session-id", b"a"]), st.binary(max_size=9))),
    body=st.none() | st.binary(max_size=60) | st.dictionaries(_texts, _texts).map(json.dumps),
)
def test_any_input_gives_a_short_key_or_none(
    affinity: Affinity, headers: Sequence[tuple[bytes, bytes]], body: bytes | str | None
) -> None:
    given_ = body.encode("utf-8", "surrogatepass") if isinstance(body, str) else body
    key = affinity_key(affinity, headers, given_)
    assert key is None or len(key) == 8
    assert key == affinity_key(affinity, headers, given_)
