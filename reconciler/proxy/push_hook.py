"""`POST /api/management/pushed`: a git host tells that something was pushed.

It makes the agent look at its manifest now, and does nothing else; it may come from anywhere, since
whoever sends it has to know a secret. GitHub, Gitea and Forgejo sign the body; GitLab shows the
secret itself.
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from starlette.types import Receive, Scope, Send

from reconciler.errors import XgenError
from reconciler.proxy import errors
from reconciler.proxy.client import read_body
from reconciler.proxy.errors import Header, Problem
from reconciler.proxy.headers import first
from reconciler.proxy.management import answer_command

_BODY_BYTES = 4 * 1024 * 1024
_TOKEN = b"x-gitlab-token"
_SIGNATURES = ((b"x-hub-signature-256", b"sha256="), (b"x-gitea-signature", b""))


@dataclass(frozen=True, slots=True, kw_only=True)
class PushHook:
    """`secret`: what the host was given, not empty; raises XgenError. `look`: at the manifest."""

    secret: Callable[[], Awaitable[bytes]]
    look: Callable[[], object]


class Pushed:
    """Answers 202 when the look was asked for. `hook`: None: no secret was agreed on."""

    def __init__(self, hook: PushHook | None) -> None:
        self._hook = hook

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await answer_command(scope, send, self._answer(scope, receive), status=202)

    async def _answer(self, scope: Scope, receive: Receive) -> object | Problem:
        if self._hook is None:
            return errors.no_push_hook()
        body = await read_body(receive, scope["headers"], limit_bytes=_BODY_BYTES)
        if isinstance(body, Problem):
            return body
        try:
            secret = await self._hook.secret()
        except XgenError as exc:
            return errors.push_hook_broken(str(exc))
        if not is_authentic(scope["headers"], body, secret):
            return errors.not_authentic()
        self._hook.look()
        return {"api": 1, "looking": True}


def is_authentic(given: list[Header], body: bytes, secret: bytes) -> bool:
    """Whether who sent this knows the secret. Of several proofs the first counts."""
    if (token := first(given, _TOKEN)) is not None:
        return hmac.compare_digest(token, secret)
    for name, prefix in _SIGNATURES:
        if (shown := first(given, name)) is not None:
            digest = hmac.new(secret, body, hashlib.sha256).hexdigest().encode()
            return hmac.compare_digest(shown, prefix + digest)
    return False
