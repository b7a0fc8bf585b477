"""Names are looked up beside the event loop, in a thread of their own.

What the C library does with a name server that is silent takes as long as it takes (up to half a
minute), and cannot be broken off.
"""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

Resolve = Callable[[str], Sequence[str]]
"""A name's IP addresses, of both families. It blocks; raises OSError, UnicodeError."""

_T = TypeVar("_T")

_WORDS = {
    socket.EAI_NONAME: "there is no such name (NXDOMAIN), or it has no address",
    socket.EAI_AGAIN: "the name server has failed (SERVFAIL) or does not answer",
    socket.EAI_FAIL: "the name server refuses, or answers nonsense",
    socket.EAI_NODATA: "the name has no address",
}


class NoAnswer(Exception):
    """Why a look-up came to nothing: a clause."""


class Hanging(NoAnswer):
    """One from before still hangs in the thread, so none was begun."""


class Lookups:
    """One at a time, and no other while one hangs: there is never more than one thread."""

    def __init__(self, *, limit_seconds: float) -> None:
        self._limit = limit_seconds
        self._under_way: tuple[str, asyncio.Future[Any]] | None = None

    async def ask(self, name: str, work: Callable[[], _T]) -> _T:
        """What `work` returns. Raises NoAnswer after the limit, and for its OSError."""
        if self._under_way is not None:
            raise Hanging(f"the look-up of {self._under_way[0]} still hangs")
        future: asyncio.Future[_T] = asyncio.get_running_loop().create_future()
        _start(name, work, future)
        self._under_way = (name, future)
        future.add_done_callback(self._come_back)
        await asyncio.wait((future,), timeout=self._limit)
        if not future.done():
            raise NoAnswer(f"no answer within {self._limit:g} s")
        try:
            return future.result()
        except OSError as exc:
            raise NoAnswer(_WORDS.get(exc.errno or 0) or exc.strerror or repr(exc)) from exc
        except UnicodeError as exc:
            raise NoAnswer(f"it cannot be a host's name: {exc}") from exc

    def _come_back(self, future: asyncio.Future[Any]) -> None:
        """Also after nobody waited for it any more."""
        self._under_way = None
        if not future.cancelled():
            future.exception()


def _start(name: str, work: Callable[[], _T], future: asyncio.Future[Any]) -> None:
    loop = future.get_loop()

    def run() -> None:
        told: Callable[[], None]
        try:
            result = work()
        except Exception as exc:  # noqa: BLE001  the thread's boundary: it is raised above
            error = exc
            told = lambda: future.set_exception(error)  # noqa: E731
        else:
            told = lambda: future.set_result(result)  # noqa: E731
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(told)

    threading.Thread(target=run, name=f"look-up:{name}", daemon=True).start()


def resolved(name: str) -> list[str]:
    """By the system's resolver: /etc/hosts, DNS with its search list, and what else it is told."""
    found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(_host(family, sockaddr) for family, *_, sockaddr in found))


def _host(family: int, sockaddr: tuple[object, ...]) -> str:
    host = str(sockaddr[0])
    scope = sockaddr[3] if family == socket.AF_INET6 else 0
    if not isinstance(scope, int) or not scope or "%" in host:
        return host
    with contextlib.suppress(OSError):
        return f"{host}%{socket.if_indextoname(scope)}"
    return host
