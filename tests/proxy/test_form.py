"""Reading `model` and `stream` from a multipart form, so that proxy and engine never differ."""

from email.parser import BytesParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.proxy.body import Abandoned, Peek
from reconciler.proxy.errors import Problem
from reconciler.proxy.form import boundary_of, peek_form
from tests.proxy.forms import BOUNDARY, form, part

_MIB = 1 << 20


def read(body: bytes) -> Peek | Problem:
    return peek_form(
        lambda place, size: body[place : place + size],
        len(body),
        BOUNDARY,
        abandoned=lambda: False,
    )


def ok(body: bytes) -> Peek:
    result = read(body)
    assert isinstance(result, Peek), result
    return result


def code(body: bytes) -> str:
    result = read(body)
    assert isinstance(result, Problem), result
    assert result.status == 400
    return result.code


FILE = part("file", b"RIFF\r\n--\x00\xff", "Content-Type: audio/wav\r\n", filename="a.wav")
MODEL = part("model", b"whisper")


@pytest.mark.parametrize("parts", [(MODEL, FILE), (FILE, MODEL)])
def test_the_model_may_stand_before_and_behind_the_file(parts: tuple[bytes, ...]) -> None:
    body = form(*parts)
    found = ok(body)
    assert found.model == "whisper"
    assert found.span is not None
    assert body[slice(*found.span)] == b"whisper"


@pytest.mark.parametrize(
    ("value", "stream"), [(b"true", True), (b"True", True), (b"1", True), (b"false", False)]
)
def test_the_form_says_whether_it_wants_a_stream(value: bytes, stream: bool) -> None:
    assert ok(form(FILE, part("stream", value))).stream is stream


def test_a_form_may_name_no_model() -> None:
    assert ok(form(FILE)) == Peek(model=None, stream=False, span=None)
    assert ok(form()) == Peek(model=None, stream=False, span=None)


@pytest.mark.parametrize(
    "head",
    [
        b"content-disposition: FORM-DATA; name=model",
        b'Content-Disposition:form-data;name="model"',
        b'Content-Type: text/plain; charset=utf-8\r\nContent-Disposition: form-data; name="model"',
    ],
)
def test_heads_as_usual_clients_write_them_are_understood(head: bytes) -> None:
    assert ok(form(head + b"\r\n\r\nwhisper")).model == "whisper"


def test_names_that_only_look_like_it_are_others() -> None:
    others = [part(name, b"no") for name in ("Model", "model[]", " model", "%6dodel", "")]
    assert ok(form(*others, MODEL)).model == "whisper"


def test_two_models_are_refused() -> None:
    assert code(form(MODEL, FILE, MODEL)) == "duplicate_model"
    refused = read(form(MODEL, FILE, MODEL))
    assert isinstance(refused, Problem)
    assert refused.message.endswith('the form has two fields "model"')


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"\r\n" + form(MODEL),
        form(MODEL).replace(b"\r\n", b"\n"),
        form(MODEL + b"\n--" + BOUNDARY),
        form(MODEL, end=b""),
        form(MODEL, end=b" --\r\n"),
        form(MODEL, end=b"x"),
        form(MODEL)[:-10],
        form(b"\r\nno disposition"),
        form(b"Content-Disposition: attachment\r\n\r\nx"),
        form(b'Content-Disposition: form-data; name="mo\\del"\r\n\r\nx'),
        form(b'Content-Disposition: form-data; name="x"; name="model"\r\n\r\nx'),
        form(b"Content-Disposition: form-data; name*=utf-8''model\r\n\r\nx"),
        form(b'Content-Disposition: form-data; name="x"\r\n ;name="model"\r\n\r\nx'),
        form(b'Content-Disposition: form-data; name="x"\nX: y\r\n\r\nx'),
        form(b"Content-Disposition: form-data; name=x\r\n" + MODEL),
        form(b"X: " + b"y" * 9000 + b"\r\n" + MODEL),
        form(part("model", b"x" * 2000)),
        form(part("model", b"\xff")),
        form(part("model", b"x", filename="model")),
        form(part("model", b"eA==", "Content-Transfer-Encoding: base64\r\n")),
        form(part("stream", b"true"), part("stream", b"false")),
        form(*[part("x", b"")] * 1001),
    ],
)
def test_what_somebody_might_read_differently_is_refused(body: bytes) -> None:
    assert code(body) == "invalid_form"


@pytest.mark.parametrize(
    ("content_type", "boundary"),
    [
        (b"multipart/form-data; boundary=abc", b"abc"),
        (b'Multipart/Form-Data ; charset=utf-8; Boundary="a b:c"', b"a b:c"),
        (b"multipart/form-data; boundary=abc; charset=utf-8", b"abc"),
        (b"multipart/form-data", None),
        (b"multipart/form-data; boundary=", None),
        (b"multipart/form-data; boundary=a; boundary=b", None),
        (b'multipart/form-data; x="; boundary=a; y"; boundary=b', None),
        (b"multipart/mixed; boundary=abc", None),
        (b"application/json", None),
        (None, None),
    ],
)
def test_the_boundary_is_the_one_that_the_content_type_names(
    content_type: bytes | None, boundary: bytes | None
) -> None:
    found = boundary_of(content_type)
    assert (None if isinstance(found, Problem) else found) == boundary


@pytest.mark.parametrize("missing", range(0, 120, 7))
def test_a_boundary_between_two_pieces_is_found(missing: int) -> None:
    body = form(part("file", b"x" * (_MIB - missing), filename="a"), MODEL)
    assert ok(body).model == "whisper"


def test_a_search_ends_when_nobody_wants_its_result() -> None:
    body = form(MODEL)
    with pytest.raises(Abandoned):
        peek_form(lambda p, n: body[p : p + n], len(body), BOUNDARY, abandoned=lambda: True)


_names = st.sampled_from(["model", "stream", "file", "Model", "x"])
_contents = st.binary(max_size=12) | st.sampled_from(
    [b"whisper", b"\r\n", b"--", b"\r\n--", b"\r\n--" + BOUNDARY[:-1], b'name="model"']
)


@st.composite
def _forms(draw: st.DrawFn) -> bytes:
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        more = draw(st.sampled_from(["", "Content-Type: text/plain\r\n"]))
        name = draw(st.sampled_from([None, "a.wav", "model"]))
        parts.append(part(draw(_names), draw(_contents), more, filename=name))
    return form(*parts)


def _as_python_reads_it(body: bytes) -> list[bytes]:
    """The values of the fields `model`."""
    head = b'Content-Type: multipart/form-data; boundary="' + BOUNDARY + b'"\r\n\r\n'
    message = BytesParser().parsebytes(head + body)
    models = [
        each
        for each in message.walk()
        if each.get_param("name", header="content-disposition") == "model"
    ]
    return [
        payload for each in models if isinstance(payload := each.get_payload(decode=True), bytes)
    ]


@given(_forms(), st.data())
def test_a_form_whole_or_damaged_is_refused_or_read_as_python_reads_it(
    body: bytes, data: st.DataObject
) -> None:
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(body)))
        body = body[:place] + data.draw(st.binary(max_size=3)) + body[place + 1 :]
    result = read(body)
    if isinstance(result, Peek):
        models = [] if result.model is None else [result.model.encode()]
        assert _as_python_reads_it(body) == models
