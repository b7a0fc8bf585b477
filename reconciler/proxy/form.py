"""What a multipart form says about its routing, read where it lies.

The field `model` may come after the file. Whatever engines might read in another way than we do is
refused: then proxy and engine could mean different models.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from reconciler.proxy import errors
from reconciler.proxy.body import Abandoned, Peek
from reconciler.proxy.errors import Problem

ReadAt = Callable[[int, int], bytes]
"""(place, size) → the bytes there, fewer at the end."""

_PIECE_BYTES = 1 << 20
_HEAD_BYTES = 8 * 1024
_VALUE_BYTES = 1024
"""Of the fields that are read; files may be as long as a form."""
_MOST_PARTS = 1000
_CRLF = b"\r\n"
_TYPE = re.compile(rb"multipart/form-data\s*;", re.IGNORECASE)
_BOUNDARY = re.compile(
    rb";\s*boundary=(?:\"([^\"\\]{1,70})\"|([0-9A-Za-z'()+_,./:=?-]{1,70}))\s*(?=;|$)",
    re.IGNORECASE,
)
_DISPOSITION = re.compile(
    rb"content-disposition:[ \t]*form-data;[ \t]*name=(?:\"([^\"\\]*)\"|([!#-'*+.0-9A-Z^-z|~-]+))"
    rb"((?:;[ \t]*filename\*?=(?:\"(?:[^\"\\]|\\.)*\"|[^\";\s]+))*)[ \t]*",
    re.IGNORECASE,
)
_NOT_A_LINE = re.compile(rb"^[ \t]|[\r\n\0]")
"""One that goes on with the line before it, or that others may take for two."""
_PLAIN_HEADERS = re.compile(rb"content-(disposition|type|length):", re.IGNORECASE)


class _Malformed(Exception):
    """Why it is no form that everybody reads alike."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """`name` of a field; `is_file`: it has a file's name. `start`, `end`: its value."""

    name: bytes
    is_file: bool
    plain: bool
    start: int
    end: int


def boundary_of(content_type: bytes | None) -> bytes | Problem:
    given = content_type or b""
    found = _BOUNDARY.findall(given) if _TYPE.match(given) else []
    if len(found) != 1:
        return errors.bad_form("its Content-Type is not multipart/form-data with one boundary")
    quoted, bare = found[0]
    boundary: bytes = quoted or bare
    return boundary


def peek_form(
    read_at: ReadAt, size: int, boundary: bytes, *, abandoned: Callable[[], bool]
) -> Peek | Problem:
    """`Peek.span` is the field's value, as it is. Raises Abandoned soon after `abandoned()`."""
    fields: dict[bytes, _Part] = {}
    try:
        for part in _parts(_Text(read_at, size, abandoned), boundary):
            if part.name not in (b"model", b"stream"):
                continue
            if part.name in fields:
                return _twice(part.name.decode())
            fields[part.name] = part
        model, stream = (_value(read_at, fields.get(name)) for name in (b"model", b"stream"))
    except _Malformed as exc:
        return errors.bad_form(str(exc))
    span = (fields[b"model"].start, fields[b"model"].end) if model is not None else None
    return Peek(model=model, stream=(stream or "").lower() in ("true", "1"), span=span)


def _twice(name: str) -> Problem:
    if name == "model":
        return errors.duplicate_model('the form has two fields "model"')
    return errors.bad_form(f'it has two fields "{name}"')


def _value(read_at: ReadAt, part: _Part | None) -> str | None:
    if part is None:
        return None
    if part.is_file or not part.plain or part.end - part.start > _VALUE_BYTES:
        raise _Malformed(f'its field "{part.name.decode()}" is not a short text')
    try:
        return read_at(part.start, part.end - part.start).decode()
    except UnicodeDecodeError as exc:
        raise _Malformed(f'its field "{part.name.decode()}" is not UTF-8') from exc


class _Text:
    """The form, searched piece by piece."""

    def __init__(self, read_at: ReadAt, size: int, abandoned: Callable[[], bool]) -> None:
        self.read_at = read_at
        self._size = size
        self._abandoned = abandoned

    def find(self, wanted: bytes, start: int) -> int:
        """Where it stands next; -1: nowhere."""
        while start < self._size:
            if self._abandoned():
                raise Abandoned("cannot read the form: its client left")
            found = self.read_at(start, _PIECE_BYTES + len(wanted) - 1).find(wanted)
            if found >= 0:
                return start + found
            start += _PIECE_BYTES
        return -1


def _parts(text: _Text, boundary: bytes) -> Iterator[_Part]:
    delimiter = b"--" + boundary
    if text.read_at(0, len(delimiter)) != delimiter:
        raise _Malformed("it does not begin with its boundary")
    place = len(delimiter)
    for _ in range(_MOST_PARTS):
        follows = text.read_at(place, 2)
        if follows == b"--":
            return
        if follows != _CRLF:
            raise _Malformed("something else than the end of the line follows a boundary")
        head = text.read_at(place, _HEAD_BYTES)
        length = head.find(_CRLF + _CRLF, len(_CRLF))
        if length < 0:
            raise _Malformed("the head of a part does not end")
        start = place + length + 2 * len(_CRLF)
        found = text.find(delimiter, start)
        if found < 0:
            raise _Malformed("its last boundary is missing")
        end = found - len(_CRLF)
        if end < start or text.read_at(end, len(_CRLF)) != _CRLF:
            raise _Malformed("a boundary does not stand on a line of its own")
        yield _part(head[len(_CRLF) : length], start, end)
        place = found + len(delimiter)
    raise _Malformed(f"it has more than {_MOST_PARTS} parts")


def _part(head: bytes, start: int, end: int) -> _Part:
    lines = head.split(_CRLF)
    dispositions = [line for line in lines if line.lower().startswith(b"content-disposition")]
    found = _DISPOSITION.fullmatch(dispositions[0]) if len(dispositions) == 1 else None
    if found is None or any(_NOT_A_LINE.search(line) for line in lines):
        raise _Malformed("a part has no Content-Disposition that everybody reads alike")
    quoted, bare, filename = found.groups()
    return _Part(
        name=bare if quoted is None else quoted,
        is_file=bool(filename),
        plain=all(_PLAIN_HEADERS.match(line) for line in lines),
        start=start,
        end=end,
    )
