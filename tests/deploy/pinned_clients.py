"""Clients that keep a connection for as long as they may, as they do through a Service.

A Service chooses a pod for each connection, and never moves one.
"""

import http.client
import json
import time
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from tests.cluster.load import Entrances, Outcome
from tests.e2e.clients import HELLO, TOKENS

_SECONDS = 60


@dataclass(kw_only=True)
class PinnedClient:
    """`connections`: how many it has made."""

    entrances: Entrances
    model: str
    connections: int = 0
    _kept: http.client.HTTPConnection | None = field(default=None, repr=False)

    def ask(self) -> Outcome:
        """A chat, on the connection that it has, or on a new one."""
        asked_at = time.monotonic()
        if self._kept is None:
            at = urlsplit(self.entrances.next()).netloc
            self._kept = http.client.HTTPConnection(at, timeout=_SECONDS)
            self.connections += 1
        body = json.dumps({"model": self.model, "messages": HELLO})
        try:
            headers = {"Content-Type": "application/json"}
            self._kept.request("POST", "/v1/chat/completions", body=body, headers=headers)
            answer = self._kept.getresponse()
            text = answer.read().decode()
        except (OSError, http.client.HTTPException) as exc:
            self.leave()
            return Outcome(asked_at=asked_at, error=repr(exc))
        if answer.will_close:
            self.leave()
        whole = answer.status == 200 and TOKENS in text
        return Outcome(asked_at=asked_at, text=text, error=None if whole else text)

    def leave(self) -> None:
        if self._kept is not None:
            self._kept.close()
            self._kept = None
