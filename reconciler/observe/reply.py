"""One request to a backend, and what came of it; nothing here raises for what it does."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

import aiohttp
import msgspec


class Address(Protocol):
    """As `backend.launch.Launch` and `status.Endpoint`: the port of this very spawn, never a
    remembered one."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...
    @property
    def api_key(self) -> str | None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """`json` is None where the body is none."""

    status: int
    json: object

    def __str__(self) -> str:
        """`503 Loading model`: the status and the engine's own words, where it has some."""
        error = self.json.get("error") if isinstance(self.json, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        return f"{self.status} {message}" if isinstance(message, str) else str(self.status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """Why no reply came, as a clause. `late`: it had its time."""

    reason: str
    late: bool = False

    def __str__(self) -> str:
        return self.reason


def url_of(address: Address, path: str) -> str:
    return f"http://{address.host}:{address.port}{path}"


def key_header(address: Address) -> dict[str, str]:
    return {"Authorization": f"Bearer {address.api_key}"} if address.api_key else {}


async def ask(
    session: aiohttp.ClientSession,
    address: Address,
    method: str,
    path: str,
    *,
    body: bytes | aiohttp.FormData | None = None,
    seconds: float,
) -> Reply | Silence:
    """A refused connection is how most engines say "loading"."""
    headers = key_header(address)
    if isinstance(body, bytes):
        headers["Content-Type"] = "application/json"
    try:
        async with session.request(
            method,
            url_of(address, path),
            data=body,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=seconds),
            allow_redirects=False,
        ) as response:
            return Reply(status=response.status, json=_decode(await response.read()))
    except aiohttp.ClientConnectorError:
        return Silence(reason=f"port {address.port} is not open yet")
    except TimeoutError:
        return Silence(reason=f"nothing came within {seconds:g} s", late=True)
    except (aiohttp.ClientError, ConnectionError, asyncio.IncompleteReadError) as exc:
        return Silence(reason=f"the connection broke ({type(exc).__name__})")


def _decode(content: bytes) -> object:
    try:
        return msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
