"""Asking another agent for its status, without trust: its time, its size and its form have limits.

Its answer may come from anything that listens at a wrong address.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import urlencode

import aiohttp
import msgspec
from yarl import URL

from reconciler.errors import Transient
from reconciler.plan.peering import Address
from reconciler.proxy.outgoing import why_not_connected

TOKEN_HEADER = "X-Xgen-Cluster-Token"
TOKEN_REFUSED = "cluster_token_refused"
"""The error's code of an agent whose token is another one."""
_CONNECT_SECONDS = 2.0
_ANSWER_SECONDS = 4.0
"""Beyond the time that it was told to wait. It must send something as often."""
_WHOLE_SECONDS = 20.0
_MOST_BYTES = 16 * 1024 * 1024
_AT_ONCE = 64
"""Requests that are answered at once. Those that wait elsewhere have no such limit."""
_NAMES_KEPT_SECONDS = 5


class PeerFailed(Transient):
    """No answer of use. The message: a clause, with the agent as its subject."""


class PeerRefused(PeerFailed):
    """It answers, and does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`after`, `agent_id`, `silent`: of what it said last; None, before it has said anything.
    `wait_seconds`: for something else to say; 0: it answers at once."""

    after: int | None = None
    agent_id: str | None = None
    silent: bool = False
    wait_seconds: float = 0.0

    def query(self) -> str:
        after = -1 if self.after is None else self.after
        said = {"after": after, "agent": self.agent_id or "", "wait": f"{self.wait_seconds:g}"}
        return urlencode({**said, "silent": "true"} if self.silent else said)


class PeerClient:
    """`tokens`: the one as of now, which goes to peers and nowhere else; None: there is none."""

    def __init__(
        self, tokens: Callable[[], str | None], *, answer_seconds: float = _ANSWER_SECONDS
    ) -> None:
        self._tokens = tokens
        self._answer_seconds = answer_seconds

    async def __aenter__(self) -> "PeerClient":
        self._turns = asyncio.Semaphore(_AT_ONCE)
        self._held = self._session(force_close=False)
        self._fresh = self._session(force_close=True)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._held.close()
        await self._fresh.close()

    async def ask(self, address: Address, question: Question, *, kept: bool) -> bytes:
        """The body of the answer. `kept`: its connection is, for the next question. Raises
        PeerFailed."""
        if question.wait_seconds > 0:
            return await self._ask(self._held, address, question)
        async with self._turns:
            return await self._ask(self._held if kept else self._fresh, address, question)

    async def _ask(
        self, session: aiohttp.ClientSession, address: Address, question: Question
    ) -> bytes:
        url = URL(f"http://{address}/api/cluster/_self?{question.query()}", encoded=True)
        limit = question.wait_seconds + self._answer_seconds
        token = self._tokens()
        headers = {TOKEN_HEADER: token} if token is not None else {}
        try:
            async with asyncio.timeout(limit) as time:
                async with session.get(url, headers=headers, allow_redirects=False) as response:
                    time.reschedule(asyncio.get_running_loop().time() + _WHOLE_SECONDS)
                    body = await self._body(response)
        except (aiohttp.ConnectionTimeoutError, aiohttp.ClientConnectorError) as exc:
            raise PeerFailed(why_not_connected(exc, _CONNECT_SECONDS)) from exc
        except TimeoutError as exc:
            raise PeerFailed(f"has not answered within {limit:g} s") from exc
        except (aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError) as exc:
            raise PeerFailed("ended the connection before its answer was complete") from exc
        except aiohttp.ClientConnectionError as exc:
            raise PeerFailed("reset the connection") from exc
        except (aiohttp.ClientError, ValueError) as exc:
            raise PeerFailed("is not an xgen-model agent: its answer is not HTTP") from exc
        if response.status != 200:
            raise PeerRefused(_refusal(response.status, body, has_token=token is not None))
        return body

    async def _body(self, response: aiohttp.ClientResponse) -> bytes:
        chunks, size = [], 0
        loop = asyncio.get_running_loop()
        chunk = b" "
        while chunk:
            async with asyncio.timeout_at(loop.time() + self._answer_seconds):
                chunk = await response.content.readany()
            size += len(chunk)
            if size > _MOST_BYTES:
                raise PeerFailed(f"answers with more than {_MOST_BYTES >> 20} MiB")
            chunks.append(chunk)
        return b"".join(chunks)

    def _session(self, *, force_close: bool) -> aiohttp.ClientSession:
        connector = aiohttp.TCPConnector(
            limit=0, force_close=force_close, ttl_dns_cache=_NAMES_KEPT_SECONDS
        )
        headers = {"Accept": "application/json", "Accept-Encoding": "identity"}
        return aiohttp.ClientSession(
            connector=connector,
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            timeout=aiohttp.ClientTimeout(
                total=None, connect=_CONNECT_SECONDS, sock_connect=_CONNECT_SECONDS
            ),
        )


def _refusal(status: int, body: bytes, *, has_token: bool) -> str:
    if status == 403 and _code(body) == TOKEN_REFUSED:
        if has_token:
            return "refuses our cluster token"
        return "wants a cluster token, and this node has none (--cluster-token-file)"
    return f"is not an xgen-model agent, or it fails: it answers {status}"


def _code(body: bytes) -> object:
    try:
        value = msgspec.json.decode(body)
        return value["error"]["code"]
    except (msgspec.DecodeError, RecursionError, KeyError, TypeError):
        return None
