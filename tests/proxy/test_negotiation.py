"""What a client has already, and what form of an answer it prefers."""

import pytest

from reconciler.proxy.negotiation import has_already, prefers_html

_OURS = b'W/"agent-7-a,b"'
_FIREFOX = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"


@pytest.mark.parametrize(
    "given",
    [
        (b"*",),
        (b" * ",),
        (_OURS,),
        (b'"agent-7-a,b"',),
        (b'"x", W/"agent-7-a,b"',),
        (b'W/"agent-7-a,b","x"',),
        (b', ,"x" ,\tW/"agent-7-a,b" ,',),
        (b'"x"', b'W/"agent-7-a,b"'),
    ],
)
def test_one_of_the_tags_that_a_client_has_is_ours(given: tuple[bytes, ...]) -> None:
    assert has_already([(b"if-none-match", each) for each in given], _OURS)


@pytest.mark.parametrize(
    "given",
    [
        (),
        (b"",),
        (b'"agent-7-a"',),
        (b'"xW/"agent-7-a,b""',),
        (b"agent-7-a,b",),
        (b'w/"agent-7-a,b"',),
        (b'"x" W/"agent-7-a,b"',),
        (b'W/"agent-7-a,b',),
        (b'W/"agent-7-a,b" junk',),
        (b'"x", *',),
        (b'"prefix W/', b'"'),
    ],
)
def test_what_is_no_list_with_our_tag_in_it_is_not(given: tuple[bytes, ...]) -> None:
    assert not has_already([(b"if-none-match", each) for each in given], _OURS)


@pytest.mark.parametrize(
    "accept",
    [
        _FIREFOX,
        "text/html",
        "TEXT/HTML ; Q=1.0",
        "text/*",
        "text/html;q=0.5, application/json;q=0.4",
        "application/json;q=0, */*",
        "text/html;level=1",
        "application/json;q=nonsense, text/html",
    ],
)
def test_browsers_prefer_the_page(accept: str) -> None:
    assert prefers_html([(b"accept", accept.encode())])


@pytest.mark.parametrize(
    "accept",
    [
        None,
        "",
        "*/*",
        "application/json",
        "application/json, text/html",
        "application/json, text/html;q=0.9",
        "text/html;q=0, */*",
        "text/html;q=2, application/json;q=0.1",
        "text/html;q=, */*",
        "application/*",
        "image/png",
        ";;,,;q=1",
    ],
)
def test_others_get_json(accept: str | None) -> None:
    assert not prefers_html([(b"accept", accept.encode())] if accept is not None else [])


def test_several_headers_are_one_list() -> None:
    assert prefers_html([(b"accept", b"application/json;q=0.1"), (b"accept", b"text/html")])
