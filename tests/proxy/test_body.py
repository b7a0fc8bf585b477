"""Reading `model` and `stream` from a body, so that proxy and backend never differ."""

import json
import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.proxy.body import Abandoned, Peek, peek, rename
from reconciler.proxy.errors import Problem


def ok(body: bytes) -> Peek:
    result = peek(body)
    assert isinstance(result, Peek), result
    return result


def code(body: bytes) -> str:
    result = peek(body)
    assert isinstance(result, Problem), result
    assert result.status == 400
    return result.code


@pytest.mark.parametrize("body", [b"", b" \r\n"])
def test_no_body_is_called_empty(body: bytes) -> None:
    result = peek(body)
    assert isinstance(result, Problem)
    assert (result.status, result.code) == (400, "invalid_json")
    assert result.message == "cannot read the body: it is empty"


@pytest.mark.parametrize(
    ("body", "model", "stream"),
    [
        (b"{}", None, False),
        (b'{"model":"a"}', "a", False),
        (b' {"model" :\t"a" ,\n"stream": true } ', "a", True),
        (b'{"model":null,"stream":null}', None, False),
        (b'{"stream":false}', None, False),
        (b'{"stream":"true"}', None, False),
        (b'{"mod\\u0065l":"a"}', "a", False),
        (b'{"\\u006d\\u006F\\u0064\\u0065\\u006C":"a"}', "a", False),
        (b'{"model":"\\u0061\\n\\"\\\\"}', 'a\n"\\', False),
        ('{"model":"模型"}'.encode(), "模型", False),
        (b'{"x":{"model":"no"},"y":[{"model":"no"}]}', None, False),
        (b'{"x":{"model":"no"},"model":"yes","z":"\\"model\\":\\"no\\""}', "yes", False),
        (b'{"x":"model","model":"yes"}', "yes", False),
        (b'{"x":"}],","y":["]"],"model":"yes","z":[1,-2.5e3,true,null]}', "yes", False),
        (b'{"Model":"no","models":"no","model ":"no"}', None, False),
        (b'{"modeL\\u006c":"no"}', None, False),
        (b'{"x\\"model":"no","\\\\\\"model":"no","model":"yes"}', "yes", False),
        (
            b'{"x":"\\\\","y":{"model":{"model":[]}},"model":"yes","z":{"mod\\u0065l":0}}',
            "yes",
            False,
        ),
        (b'{"y":{"model":"no"},"z":[{"model":"no"},{"mod\\u0065l":"no"}]}', None, False),
    ],
)
def test_reads_the_top_level_keys_only(body: bytes, model: str | None, stream: bool) -> None:
    found = ok(body)
    assert (found.model, found.stream) == (model, stream)


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"a","model":"b"}',
        b'{"model":"a","model":"a"}',
        b'{"model":null,"model":"b"}',
        b'{"model":"a","mod\\u0065l":"b"}',
        b'{"mod\\u0065l":"a","x":{"y":[]},"\\u006dodel":null}',
    ],
)
def test_two_top_level_models_are_refused(body: bytes) -> None:
    assert code(body) == "duplicate_model"


@pytest.mark.parametrize(
    "half", [b"\\ud83d", b"\\uDC00", b"\\udc6d", b"\\\\\\ud800", b"\\ud800\\n"]
)
def test_half_of_a_surrogate_pair_is_for_the_engine_to_judge(half: bytes) -> None:
    """JavaScript writes it where it cuts an emoji, and RFC 8259 allows it."""
    found = ok(b'{"x":"' + half + b'","' + half + b'":{"model":1},"model":"a\\ud83d\\ude00"}')
    assert found.model == "a😀"
    named = ok(b'{"model":"' + half + b'"}')
    assert named.model == json.loads(b'"' + half + b'"')


def test_half_of_a_surrogate_pair_never_makes_a_key_a_model() -> None:
    assert ok(b'{"\\udc6dodel":"a"}').model is None


def test_more_model_keys_than_can_be_told_apart_are_refused() -> None:
    nested = b",".join([b'{"model":1}'] * 9_999)
    assert ok(b'{"x":[' + nested + b'],"model":"a"}').model == "a"
    assert code(b'{"x":[{"model":0},' + nested + b'],"model":"a"}') == "too_many_keys"


@pytest.mark.parametrize("key", [b'"%d"', b'"\\u0061%d"'])
def test_a_body_of_many_keys_takes_no_more_room_than_itself(key: bytes) -> None:
    """A dict of them took thirteen times as much, and held everybody up while it was made."""
    members = b",".join(key % number + b":1" for number in range(100_000))
    body = b'{"y":{"model":1},"model":"a",' + members + b"}"
    tracemalloc.start()
    try:
        assert ok(body).model == "a"
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 2 * len(body)


def test_a_search_ends_when_nobody_wants_its_result() -> None:
    with pytest.raises(Abandoned):
        peek(b'{"x":{"model":1},"model":"a"}', abandoned=lambda: True)


def test_what_is_not_utf8_is_found_wherever_it_stands() -> None:
    text = '{"x":"' + "é😀x" * 300_000 + '"}'
    assert ok(text.encode()).model is None
    assert code(text.encode()[:-2] + b"\xc3" + b'"}') == "invalid_json"
    assert code(text.encode()[:-2] + b"\x80" * 2_000_000 + b'"}') == "invalid_json"


@pytest.mark.parametrize("value", [b"1", b"true", b"[]", b'{"model":"a"}', b"-0.5"])
def test_a_model_that_is_no_string_is_refused(value: bytes) -> None:
    assert code(b'{"model":' + value + b"}") == "invalid_model"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b'"model"',
        b"model=a",
        b'{"model":"a"} x',
        b'{"model":"a"}{}',
        b'{"model":"a"',
        b'{"model":"a",}',
        b'{"x":NaN}',
        b'{"x":Infinity}',
        b'{"x":01}',
        b'{"x":"\xff"}',
        b'{"\xff":1}',
        b'{"x":"a\nb"}',
        b'\xef\xbb\xbf{"model":"a"}',
        '{"model":"a"}'.encode("utf-16"),
        b'{"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_what_is_not_one_json_object_in_utf8_is_refused(body: bytes) -> None:
    assert code(body) == "invalid_json"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b'{"model":"alias"}', b'{"model":"name"}'),
        (b'{ "model" : "alias" ,"x":1e400}', b'{ "model" : "name" ,"x":1e400}'),
        (b'{"x":{"model":"alias"},"model":"alias"}', b'{"x":{"model":"alias"},"model":"name"}'),
        (b'{"mod\\u0065l":"al\\u0069as","z":"alias"}', b'{"mod\\u0065l":"name","z":"alias"}'),
        (b'{"b":1,"b":2,"model":"alias"}', b'{"b":1,"b":2,"model":"name"}'),
    ],
)
def test_an_alias_is_replaced_in_its_place_and_nothing_else(before: bytes, after: bytes) -> None:
    found = ok(before)
    assert found.model == "alias"
    assert found.span is not None
    assert rename(before, found.span, "name") == after


_spaces = st.text(" \t\r\n", max_size=2)
_decoys = st.sampled_from(
    ["model", "stream", "alias", '"model"', 'x"model', "}", "[", "\\", "é", "", "\ud83d", "\udc6d"]
)
_strings = _decoys | st.text(st.characters(codec="utf-8"), max_size=6)
_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | _strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_strings, inner, max_size=3),
    max_leaves=8,
)


@st.composite
def _tokens(draw: st.DrawFn, value: Any) -> str:
    """JSON for a value; strings with any of their characters escaped."""
    if not isinstance(value, str):
        return json.dumps(value, ensure_ascii=draw(st.booleans()))
    escaped = draw(st.sets(st.integers(0, 5), max_size=3))
    return (
        '"'
        + "".join(
            f"\\u{ord(c):04x}"
            if i in escaped and ord(c) < 0x10000
            else json.dumps(c, ensure_ascii=False)[1:-1]
            for i, c in enumerate(value)
        )
        + '"'
    )


@st.composite
def _objects(draw: st.DrawFn) -> bytes:
    """Objects as text: any spacing and escapes, keys that stand twice, decoys at any depth."""
    members = []
    for _ in range(draw(st.integers(0, 5))):
        key = draw(_tokens(draw(_strings)))
        value = draw(_tokens(draw(_values)))
        members.append(draw(_spaces) + key + draw(_spaces) + ":" + draw(_spaces) + value)
    text = draw(_spaces) + "{" + ",".join(members) + draw(_spaces) + "}"
    return re.sub("[\ud800-\udfff]", lambda half: f"\\u{ord(half[0]):04x}", text).encode()


def _pairs(body: bytes) -> list[tuple[str, Any]]:
    """The top-level pairs as Python's json reads them."""
    pairs: list[tuple[str, Any]] = []

    def keep(found: list[tuple[str, Any]]) -> dict[str, Any]:
        pairs[:] = found  # the outermost object comes last
        return dict(found)

    assert isinstance(json.loads(body, object_pairs_hook=keep), dict)
    return pairs


@given(_objects())
def test_agrees_with_pythons_json(body: bytes) -> None:
    models = [value for key, value in _pairs(body) if key == "model"]
    result = peek(body)
    if len(models) > 1:
        assert isinstance(result, Problem)
        assert result.code == "duplicate_model"
    elif models and not isinstance(models[0], str | None):
        assert isinstance(result, Problem)
        assert result.code == "invalid_model"
    else:
        found = ok(body)
        streams = [value for key, value in _pairs(body) if key == "stream"]
        assert found.model == (models[0] if models else None)
        assert found.stream is bool(streams and streams[-1] is True)


@given(_objects(), st.text(st.characters(codec="utf-8")))
def test_a_rename_changes_the_model_only(body: bytes, name: str) -> None:
    found = peek(body)
    if not isinstance(found, Peek) or found.span is None:
        return
    renamed = rename(body, found.span, name)
    expected = [(key, name if key == "model" else value) for key, value in _pairs(body)]
    assert _pairs(renamed) == expected
    assert renamed.startswith(body[: found.span[0]])
    assert renamed.endswith(body[found.span[1] :])


@given(_objects(), st.data())
def test_a_damaged_body_is_refused_or_read_as_python_reads_it(
    body: bytes, data: st.DataObject
) -> None:
    place = data.draw(st.integers(0, len(body)))
    damaged = body[:place] + data.draw(st.binary(max_size=3)) + body[place + 1 :]
    result = peek(damaged)
    if isinstance(result, Peek):
        pairs = _pairs(damaged)
        assert result.model == dict(pairs).get("model")
        assert [key for key, _ in pairs].count("model") <= 1
