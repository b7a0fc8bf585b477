"""The loop guard: whether an agent has passed a request on, and what says so on the way.

A request is passed on once. Whoever gets it answers it, whatever it thinks of targets and load.
"""

import hmac
from collections.abc import Callable
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from reconciler.proxy.errors import Header

ROUTED = b"x-cluster-routed"
"""The node that passed it on."""
TOKEN = b"x-xgen-cluster-token"
ON_HOST = b"x-xgen-client-on-host"
"""That node vouches that it may change anything there: its client is on that host."""
MARKS = frozenset({ROUTED, TOKEN, ON_HOST})
"""Between agents only: no client says them, no backend hears them."""
_SHOWN_CHARACTERS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """How a request came. `by`: the node that says it has passed it on; None: nobody says so.

    `trusted`: so it is, as far as can be told. `proven`: by the cluster token. `vouched`: and its
    client may change anything at that node. `wrong_token`: one came, and it is not ours.
    """

    by: str | None = None
    trusted: bool = False
    proven: bool = False
    vouched: bool = False
    wrong_token: bool = False


_DIRECT = Passage()


class Guard:
    """ASGI middleware, before whatever looks at a target or a model: it judges the marks once,
    leaves `passage` in the request's state, and takes the marks off."""

    def __init__(self, app: ASGIApp, tokens: Callable[[], str | None]) -> None:
        self._app = app
        self._tokens = tokens

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            passage, marked = _DIRECT, [each for each in scope["headers"] if each[0] in MARKS]
            if marked:
                token = self._tokens()
                passage = judge(marked, token.encode() if token is not None else None)
                kept = [each for each in scope["headers"] if each[0] not in MARKS]
                scope = {**scope, "headers": kept}
            scope["state"]["passage"] = passage
        await self._app(scope, receive, send)


def judge(marked: list[Header], token: bytes | None) -> Passage:
    """`marked`: the marks that came, in any number. What stands twice proves nothing."""
    routed, tokens, on_host = (
        [value for name, value in marked if name == mark] for mark in (ROUTED, TOKEN, ON_HOST)
    )
    proven = token is not None and len(tokens) == 1 and hmac.compare_digest(tokens[0], token)
    wrong = token is not None and bool(tokens) and not proven
    if not routed:
        return Passage(proven=proven, wrong_token=wrong)
    trusted = len(routed) == 1 and (proven or token is None)
    return Passage(
        by=routed[0].decode("latin-1")[:_SHOWN_CHARACTERS],
        trusted=trusted,
        proven=proven,
        vouched=trusted and proven and on_host == [b"1"],
        wrong_token=wrong,
    )


def passage(scope: Scope) -> Passage:
    found: Passage = scope["state"]["passage"]
    return found


def is_routed(scope: Scope) -> bool:
    """Whether this node is to answer it itself: another agent has passed it on.

    So it is, too, when a wrong token came with it: of an agent with another token than ours, say,
    and between the two of us it would go round for ever.
    """
    found = passage(scope)
    return found.trusted or found.wrong_token


def pin(scope: Scope) -> None:
    """Its client has named this node: no other one may answer it."""
    scope["state"]["pinned"] = True


def is_for_this_node(scope: Scope) -> bool:
    """Whether no other node may answer it."""
    return is_routed(scope) or "pinned" in scope["state"]


def marks(*, node: str, token: str | None, on_host: bool = False) -> list[Header]:
    """What goes with a request that this node, `node`, passes on. `on_host`: its client may change
    anything here; without a token nobody would believe it."""
    said = [(ROUTED, node.encode())]
    if token is not None:
        said.append((TOKEN, token.encode()))
        if on_host:
            said.append((ON_HOST, b"1"))
    return said
