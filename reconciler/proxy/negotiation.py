"""What a client has already, and what form of an answer it prefers: RFC 9110, 12.5.1 and 13.1.2
(PURE)."""

import re
from collections.abc import Iterable

from reconciler.proxy.errors import Header

_TAG = re.compile(rb'(?:W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_BETWEEN = re.compile(rb"[ \t]*(?:,[ \t]*)+")
_QUALITY = re.compile(r"0(?:\.[0-9]{0,3})?|1(?:\.0{0,3})?")
_HTML = ("text/html", "text/*", "*/*")
_JSON = ("application/json", "application/*", "*/*")
"""The most exact range first."""


def has_already(headers: Iterable[Header], etag: bytes) -> bool:
    """Whether `If-None-Match` has the tag, compared weakly. What is no list of tags is nothing."""
    lines = [value for key, value in headers if key == b"if-none-match"]
    given = b",".join(lines).strip(b" \t,")
    if given == b"*":
        return True
    own, found, at = etag.removeprefix(b"W/"), False, 0
    while at < len(given):
        tag = _TAG.match(given, at)
        if tag is None:
            return False
        found = found or tag[1] == own
        at = tag.end()
        if at < len(given):
            between = _BETWEEN.match(given, at)
            if between is None:
                return False
            at = between.end()
    return found


def prefers_html(headers: Iterable[Header]) -> bool:
    """Over JSON: as browsers do. Who takes both alike, or says nothing, gets JSON."""
    lines = [value.decode("latin-1") for key, value in headers if key == b"accept"]
    ranges: dict[str, float] = {}
    for each in ",".join(lines).split(","):
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        ranges[kind] = _quality(parameters)
    return _of(_HTML, ranges) > _of(_JSON, ranges)


def _of(kinds: Iterable[str], ranges: dict[str, float]) -> float:
    return next((ranges[kind] for kind in kinds if kind in ranges), 0.0)


def _quality(parameters: Iterable[str]) -> float:
    """One that is no number is taken for a refusal."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            return float(value) if _QUALITY.fullmatch(value.strip()) else 0.0
    return 1.0
