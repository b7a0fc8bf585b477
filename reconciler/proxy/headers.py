"""Which headers cross the proxy, in which direction (PURE)."""

import re
from collections.abc import Iterable

from reconciler.proxy.errors import NOT_STARTED, UNANSWERED, Header
from reconciler.proxy.guard import MARKS
from reconciler.proxy.peers.load import HEADER as LOAD

DEBUG = b"x-xgen-debug"
"""`route`: the answer shall explain why it comes from where it does."""
ROUTE = b"x-xgen-route"
"""That explanation."""
RETRIED: Header = (b"x-retried", b"1")
"""On what came at the second try, from another replica than the first."""
_WAITED = b"x-xgen-waited"
_SECONDS = re.compile(rb"[0-9]{1,6}(\.[0-9]{1,6})?")

_HOP_BY_HOP = frozenset(
    {
        b"connection",
        b"keep-alive",
        b"proxy-authenticate",
        b"proxy-authorization",
        b"proxy-connection",
        b"te",
        b"trailer",
        b"transfer-encoding",
        b"upgrade",
    }
)
_NOT_TO_BACKEND = _HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"expect",
    b"accept-encoding",
    b"authorization",  # the client's key is for us; the backend has one of its own
    b"x-api-key",
    b"api-key",  # of Azure's clients
    b"cookie",
    b"x-request-id",
    b"x-target-server",
    DEBUG,
    _WAITED,
    *MARKS,
}
_NOT_TO_PEER = _HOP_BY_HOP | {
    b"host",
    b"content-length",
    b"expect",
    b"x-request-id",
    b"x-target-server",
    _WAITED,
    *MARKS,
}
"""Whatever else a client says, the peer is to hear: it is the one that answers."""
_NOT_FROM_PEER = _HOP_BY_HOP | {b"date", b"server", b"x-request-id", b"request-id", LOAD, *MARKS}
_NOT_TO_CLIENT = _HOP_BY_HOP | {
    b"date",
    b"server",
    b"x-request-id",
    b"request-id",
    b"x-served-by",
    LOAD,
    ROUTE,
    RETRIED[0],
}
_NOT_FROM_ENGINE = _NOT_TO_CLIENT | {NOT_STARTED[0], UNANSWERED[0]}
"""What agents say to each other, and act upon, is not an engine's to say."""
_CORS = b"access-control-"
"""Engines let in the pages of any origin, with credentials. Who may come is not theirs to say."""
_BUFFERING = b"x-accel-buffering"
_EVENT_STREAM = b"text/event-stream"


def waited(seconds: float) -> list[Header]:
    """What tells a peer for how long a request has waited for a turn elsewhere."""
    return [(_WAITED, f"{seconds:.3f}".encode())] if seconds > 0 else []


def waited_seconds(headers: Iterable[Header]) -> float:
    """The same, of another agent's request; what is no such number is none."""
    said = first(headers, _WAITED)
    return float(said) if said is not None and _SECONDS.fullmatch(said) else 0.0


def first(headers: Iterable[Header], name: bytes) -> bytes | None:
    """The first value of a header; names are in lower case, as ASGI has them."""
    for key, value in headers:  # half the time of `next` on a generator
        if key == name:
            return value
    return None


def to_backend(
    headers: list[Header], *, request_id: bytes, api_key: str | None
) -> list[tuple[str, str]]:
    """The client's headers without what is for us. Content-Length and Host are the sender's."""
    dropped = _and_named_in_connection(_NOT_TO_BACKEND, headers)
    kept = [(_text(key), _text(value)) for key, value in headers if key not in dropped]
    kept.append(("accept-encoding", "identity"))
    kept.append(("x-request-id", _text(request_id)))
    if api_key is not None:
        kept.append(("authorization", f"Bearer {api_key}"))
    return kept


def to_client(
    headers: Iterable[Header], *, served_by: bytes, by_agent: bool = False
) -> list[Header]:
    """The engine's headers, or those of the agent that has it (`by_agent`); an event stream is
    marked so that nothing on the way buffers it."""
    lowered = [(key.lower(), value) for key, value in headers]
    withheld = _NOT_TO_CLIENT if by_agent else _NOT_FROM_ENGINE
    dropped = _and_named_in_connection(withheld, lowered)
    kept = [
        field for field in lowered if field[0] not in dropped and not field[0].startswith(_CORS)
    ]
    if is_event_stream(kept):
        kept = [field for field in kept if field[0] != _BUFFERING]
        kept.append((_BUFFERING, b"no"))
        if first(kept, b"cache-control") is None:
            kept.append((b"cache-control", b"no-cache"))
    kept.append((b"x-served-by", served_by))
    return kept


def to_peer(headers: list[Header], more: Iterable[Header]) -> list[tuple[str, str]]:
    """The client's headers, and `more`, which are this hop's."""
    dropped = _and_named_in_connection(_NOT_TO_PEER, headers)
    kept = [field for field in headers if field[0] not in dropped]
    return [(_text(key), _text(value)) for key, value in (*kept, *more)]


def of_body(headers: list[Header]) -> list[Header] | None:
    """What of the client's headers is about its body; None: there is none. A chunked one has no
    length, and its sender says that it is."""
    length = first(headers, b"content-length")
    if int(length or b"0") == 0 and first(headers, b"transfer-encoding") is None:
        return None
    said = [] if length is None else [(b"content-length", length)]
    if (first(headers, b"expect") or b"").lower() == b"100-continue":
        said.append((b"expect", b"100-continue"))
    return said


def from_peer(headers: Iterable[Header]) -> list[Header]:
    """As it said them: another agent has made them fit for clients."""
    lowered = [(key.lower(), value) for key, value in headers]
    dropped = _and_named_in_connection(_NOT_FROM_PEER, lowered)
    return [field for field in lowered if field[0] not in dropped]


def is_event_stream(headers: Iterable[Header]) -> bool:
    return (first(headers, b"content-type") or b"").startswith(_EVENT_STREAM)


def _and_named_in_connection(names: frozenset[bytes], headers: list[Header]) -> frozenset[bytes]:
    for key, value in headers:
        if key == b"connection":
            names = names.union(name.strip().lower() for name in value.split(b","))
    return names


def _text(value: bytes) -> str:
    """The HTTP client writes UTF-8; what is none is read as Latin-1, HTTP's old charset."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
