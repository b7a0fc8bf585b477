"""Any faults of the API in any order: what is shown was put there, in the order of the puts, and
the last one is shown in the end."""

import asyncio
import contextlib
import tempfile
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from reconciler.source.kubernetes_access import KubernetesAccess
from tests.source.kubernetes_files import kubeconfig
from tests.source.kubernetes_reading import source_of, texts
from tests.source.kubernetes_server import Server, serving
from tests.source.kubernetes_store import Refused


def _delete(server: Server) -> None:
    if ("configmaps", "models", "models") in server.store.objects:
        server.store.delete()


def _set(name: str, value: object) -> Callable[[Server], None]:
    return lambda server: setattr(server, name, value)


def _stop(server: Server) -> None:
    if server.is_up:
        server.stop()


def _heal(server: Server) -> None:
    server.failing = server.refuse_watches = None
    server.deaf = server.ending = False
    server.forbidden = set()
    server.cut_events = 0
    server.tokens = None
    if not server.is_up:
        server.start()


FAULTS: Mapping[str, Callable[[Server], None]] = {
    "delete": _delete,
    "expire": lambda server: server.store.expire(),
    "drop": lambda server: server.drop(),
    "cut": _set("cut_events", 1),
    "deaf": _set("deaf", True),
    "ending": _set("ending", True),
    "status 410": _set("gone_as", "status"),
    "fail": _set("failing", Refused(500, "InternalError", "away")),
    "busy": _set("failing", Refused(429, "TooManyRequests", "busy", wait=0)),
    "refuse watches": _set("refuse_watches", Refused(503, "ServiceUnavailable", "busy")),
    "forbid": _set("forbidden", {("list", "configmaps"), ("watch", "configmaps")}),
    "other token": _set("tokens", {"another"}),
    "stop": _stop,
    "heal": _heal,
}


@settings(max_examples=20)
@given(
    st.lists(st.one_of(st.sampled_from(sorted(FAULTS)), st.none()), min_size=3, max_size=20),
    st.sampled_from(["event", "status"]),
)
@example(["expire", None], "status")
@example(["cut", None, "expire"], "event")
@example(["stop", None, "expire", "heal", "drop"], "status")
def test_the_last_one_put_is_shown_in_the_end(steps: list[str | None], gone_as: str) -> None:
    with tempfile.TemporaryDirectory() as folder, serving(Server(gone_as=gone_as)) as server:
        access = KubernetesAccess(kubeconfig=kubeconfig(Path(folder), server))
        asyncio.run(_go_through(steps, server, access))


async def _go_through(steps: list[str | None], server: Server, access: KubernetesAccess) -> None:
    """None: a put. No interval mends what is not heard of."""
    server.store.put({"a.yaml": "0"})
    seen = [0]
    another = asyncio.Event()

    async def read() -> None:
        async with aclosing(source_of(access, watch=1.0, grace=0.2).snapshots()) as snapshots:
            async for snapshot in snapshots:
                if snapshot.error is None:
                    (text,) = texts(snapshot)
                    assert int(text) >= seen[-1]
                    seen.append(int(text))
                another.set()

    async with asyncio.TaskGroup() as tasks:
        reading = tasks.create_task(read())
        await another.wait()
        number = 0
        for step in steps:
            if step is None:
                number += 1
                server.store.put({"a.yaml": str(number)})
            else:
                await asyncio.to_thread(FAULTS[step], server)
            another.clear()
            with contextlib.suppress(TimeoutError):  # nothing may come of it
                async with asyncio.timeout(0.03):
                    await another.wait()
        _heal(server)
        number += 1
        server.store.put({"a.yaml": str(number)})
        async with asyncio.timeout(60):
            while seen[-1] != number:
                another.clear()
                await another.wait()
        reading.cancel()
