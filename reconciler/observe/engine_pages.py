"""Engines' own pages of metrics: the one way in which the agent gets them."""

from types import TracebackType
from typing import Self

import aiohttp

from reconciler.errors import Bug, Transient
from reconciler.observe.reply import Address, key_header, url_of

ANSWER_SECONDS = 2.0
"""For the whole page. Engines answer at once, or are too busy to be asked."""
_PAGE_BYTES = 16 * 1024 * 1024


class EnginePages:
    """A client that keeps no connection, as an async context manager."""

    def __init__(self, *, answer_seconds: float = ANSWER_SECONDS) -> None:
        self._answer_seconds = answer_seconds
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, force_close=True),
            cookie_jar=aiohttp.DummyCookieJar(),
        )
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            await self._session.close()

    async def read(self, asked: Address, path: str, *, seconds: float | None = None) -> str:
        """The page at `path`, as it is. Raises Transient where it does not come whole in time:
        within `seconds`, or what is usual here."""
        limit = self._answer_seconds if seconds is None else seconds
        if self._session is None:
            raise Bug(f"cannot read {path} of an engine: its client is not open")
        url = url_of(asked, path)
        try:
            async with self._session.get(
                url,
                headers=key_header(asked),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=limit),
            ) as answer:
                if answer.status != 200:
                    raise Transient(f"cannot read {url}: it answers {answer.status}")
                return await _text(answer, url)
        except TimeoutError:
            raise Transient(f"cannot read {url}: nothing whole came within {limit:g} s") from None
        except (aiohttp.ClientError, OSError) as exc:
            raise Transient(f"cannot read {url}: {exc}") from exc


async def _text(answer: aiohttp.ClientResponse, url: str) -> str:
    body = b""
    async for chunk in answer.content.iter_any():
        body += chunk
        if len(body) > _PAGE_BYTES:
            raise Transient(f"cannot read {url}: it is larger than {_PAGE_BYTES} bytes")
    return body.decode("utf-8", "replace")
