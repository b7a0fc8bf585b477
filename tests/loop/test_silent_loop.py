"""A loop that hangs, for somebody holds the cache's lock: what it said last passes for old."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from reconciler.apply.stop import Hurry
from reconciler.cache.layout import Layout
from reconciler.cache.pin_board import Owner, PinBoard
from reconciler.node.board import Board
from reconciler.node.clock import SystemClock
from reconciler.node.parts import Parts, assembled
from reconciler.plan.ids import NodeName
from reconciler.pulse import SILENT_SECONDS
from reconciler.settings import HubSettings, Settings
from reconciler.status import Status
from tests.e2e.agent import MINIMAL_GGUF, llama_server_stand_in
from tests.e2e.manifests import manifest, model
from tests.loop.ticking import until_engines_are_known

NODE = NodeName("node-a")


class Clock(SystemClock):
    """The system's, and some time beside it."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


@contextlib.asynccontextmanager
async def looping(root: Path, clock: Clock) -> AsyncIterator[Parts]:
    (root / "manifests").mkdir()
    (root / "hub").mkdir()
    settings = Settings(
        manifest=str(root / "manifests"),
        hub=HubSettings(location=str(root / "hub")),
        data_dir=root / "data",
        models_dir=root / "models",
        llama_server=str(llama_server_stand_in(root)),
        environment=dict(os.environ),
    )
    board = Board(Status(node=NODE))
    async with assembled(settings, NODE, board, Hurry(), clock=clock) as parts:
        await until_engines_are_known(parts, board)
        loop = asyncio.create_task(parts.reconciler.run(), name="loop")
        yield parts
        parts.reconciler.close()
        await loop


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if true():
                return
            await asyncio.sleep(0.01)


async def test_a_loop_that_hangs_is_told_by_its_age(tmp_path: Path) -> None:
    clock = Clock()
    async with looping(tmp_path, clock) as parts:
        pulse = parts.publisher.pulse
        await until(lambda: pulse.beat().as_of is not None)
        other = PinBoard(Layout(tmp_path / "models"), Owner(node="other", data_dir="/other"))
        with contextlib.ExitStack() as stack:
            await asyncio.to_thread(stack.enter_context, other.locked())
            (tmp_path / "m.gguf").write_bytes(MINIMAL_GGUF)
            text = manifest(model(), spec="  suspend: true\n")
            (tmp_path / "manifests" / "m.yaml").write_text(text)
            parts.intent.offer(await parts.source.read())
            await until(lambda: (pulse.beat().tick_seconds or 0.0) > 1.0)
            held = pulse.beat()
            clock.ahead = SILENT_SECONDS
            silent = pulse.beat()
        await until(lambda: pulse.beat().as_of != held.as_of)
        assert held.silent_since is None
        assert silent.silent_since is not None
        assert silent.as_of == held.as_of
        assert (silent.tick_seconds or 0.0) > SILENT_SECONDS
        assert pulse.beat().silent_since is None
