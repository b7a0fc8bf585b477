"""Blocking work in a thread that the end of the process does not wait for.

A download may hang in a read for a minute; an agent that was told to end must not.
"""

import asyncio
import contextlib
import threading
from collections.abc import Callable


async def in_daemon_thread(work: Callable[[], None], *, name: str) -> None:
    """Run `work` and wait for it. Cancelled, it leaves the thread to come to its own end."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    def report(error: BaseException | None) -> None:
        if done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)

    def run() -> None:
        error: BaseException | None = None
        try:
            work()
        except BaseException as exc:  # noqa: BLE001  the thread's boundary: it is raised above
            error = exc
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(report, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    await done
