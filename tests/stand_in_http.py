"""HTTP/1.1 as the stand-in backend speaks it: connections that can be cut at any byte."""

import asyncio
import base64
import contextlib
import json
from dataclasses import dataclass

_REASONS = {200: "OK", 400: "Bad Request", 401: "Unauthorized", 404: "Not Found"}


@dataclass(frozen=True)
class Request:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def describe(self) -> dict[str, object]:
        return {
            "method": self.method,
            "target": self.target,
            "headers": self.headers,
            "body": base64.b64encode(self.body).decode(),
        }


class Reset(Exception):
    """Answer with a TCP reset."""


class Connection:
    """One client connection, one request after the other."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.requests = 0

    async def read(self, idle_seconds: float | None) -> Request | None:
        """The next request, or None when the client is done."""
        with contextlib.suppress(asyncio.IncompleteReadError, TimeoutError):
            async with asyncio.timeout(idle_seconds):
                head = await self._reader.readuntil(b"\r\n\r\n")
            first, *lines = head[:-4].decode("latin-1").split("\r\n")
            method, target, _ = first.split(" ")
            headers = [(k, v.strip()) for k, v in (line.split(":", 1) for line in lines)]
            request = Request(method, target, headers, b"")
            body = await self._reader.readexactly(int(request.header("content-length") or 0))
            self.requests += 1
            return Request(method, target, headers, body)
        return None

    async def wait_closed_by_peer(self) -> None:
        await self._reader.read(1)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


def head(status: int, content_type: str, framing: str) -> bytes:
    """Carries hop-by-hop headers on purpose: a proxy must not pass them on."""
    return (
        f"HTTP/1.1 {status} {_REASONS.get(status, 'Service Unavailable')}\r\n"
        f"Content-Type: {content_type}\r\n{framing}\r\n"
        "Connection: keep-alive, x-hop\r\nKeep-Alive: timeout=60\r\nX-Hop: 1\r\n"
        "X-Stand-In: yes\r\n\r\n"
    ).encode()


def whole(status: int, body: object, content_type: str = "application/json") -> bytes:
    data = body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return head(status, content_type, f"Content-Length: {len(data)}") + data


def failure(status: int, message: str, kind: str) -> bytes:
    return whole(status, {"error": {"code": status, "message": message, "type": kind}})
