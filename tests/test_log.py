"""A JSON log is one object a line, whatever happens and whoever says it."""

import json
import subprocess
import sys

PROGRAM = """
import asyncio, gc, logging, threading, warnings
import structlog
from reconciler import log

log.configure(form="json")
structlog.contextvars.bind_contextvars(node="n")
own = structlog.get_logger("xgen.test")
own.info("two\\nlines", odd=object())
try:
    1 / 0
except ZeroDivisionError:
    own.exception("ours")
    logging.getLogger("library").exception("theirs")
warnings.warn("careful")

async def main():
    async def fails():
        raise ValueError
    asyncio.create_task(fails())
    asyncio.get_running_loop().call_soon(lambda: 1 / 0)
    await asyncio.sleep(0.01)
    gc.collect()

asyncio.run(main())
thread = threading.Thread(target=lambda: 1 / 0)
thread.start()
thread.join()

class Fails:
    def __del__(self):
        raise ValueError

Fails()
raise RuntimeError
"""


def test_every_line_is_one_json_object() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60, check=False
    )
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert ended.returncode == 1
    assert all({"event", "level", "timestamp"} <= set(line) for line in lines)
    assert sum("exception" in line for line in lines) == 7
    assert {line["node"] for line in lines[:4]} == {"n"}
