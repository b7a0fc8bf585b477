"""A stand-in backend as a child process, and what it says of itself."""

import asyncio
import base64
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import aiohttp

from reconciler.status import ModelStatus
from tests.proxy.builders import KEY, model

_PROGRAM = Path(__file__).parents[1] / "stand_in_backend.py"
_DEADLINE_SECONDS = 20.0


class StandIn:
    def __init__(self, *flags: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(_PROGRAM), *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={"LLAMA_API_KEY": KEY},
        )
        assert self._process.stdout is not None
        self.port = int(self._process.stdout.readline().rpartition(b":")[2])

    def as_model(self, name: str = "llm", **fields: Any) -> ModelStatus:
        return model(name, port=self.port, **fields)

    async def state(self) -> Mapping[str, int]:
        state: Mapping[str, int] = await self._get("/debug/state")
        return state

    async def last_body(self) -> bytes:
        return base64.b64decode((await self._get("/debug/last"))["body"])

    async def last_headers(self) -> list[tuple[str, str]]:
        return [(k.lower(), v) for k, v in (await self._get("/debug/last"))["headers"]]

    async def last_target(self) -> str:
        return str((await self._get("/debug/last"))["target"])

    async def until(self, wanted: Callable[[Mapping[str, int]], bool]) -> Mapping[str, int]:
        """Poll its own counters until they are as wanted; the last ones are in the error."""
        deadline = asyncio.get_running_loop().time() + _DEADLINE_SECONDS
        while True:
            state = await self.state()
            if wanted(state):
                return state
            assert asyncio.get_running_loop().time() < deadline, f"last: {state}"
            await asyncio.sleep(0.01)

    async def until_running(self, count: int) -> Mapping[str, int]:
        return await self.until(lambda state: state["running"] == count)

    def kill(self) -> None:
        self._process.kill()
        self.wait()

    def wait(self) -> None:
        """Until it has ended, its sockets are closed one after the other."""
        self._process.wait()

    def close(self) -> None:
        self.kill()
        if self._process.stdout is not None:
            self._process.stdout.close()

    async def _get(self, path: str) -> Any:
        async with aiohttp.request("GET", f"http://127.0.0.1:{self.port}{path}") as response:
            return json.loads(await response.read())


StartStandIn = Callable[..., StandIn]
"""The fixture `stand_in`."""
