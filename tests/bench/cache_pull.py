"""One pull, in a process of its own: `python -m tests.bench.cache_pull HOW`, told by JSON on stdin.

Prints what it measured, as JSON.
"""

import asyncio
import json
import os
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import uvloop
from minio import Minio

from reconciler.apply.daemon_thread import in_daemon_thread
from reconciler.cache.model_cache import ModelCache
from reconciler.hub.objects import HubObject
from reconciler.hub.s3_apart import S3StoreApart
from reconciler.hub.s3_settings import S3Settings
from reconciler.plan.desired import ModelSpec
from tests.s3_server import ACCESS_KEY, KEYS, SECRET_KEY

_TICK_SECONDS = 0.001
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """`digests`: sha256 by path, as the hub's catalog names them."""

    endpoint: str
    bucket: str
    prefix: str
    target: str
    digests: dict[str, str]


class _WithCatalog(S3StoreApart):
    """A store whose objects have the sha256 that a catalog would give them."""

    def __init__(self, settings: S3Settings, digests: dict[str, str]) -> None:
        super().__init__(settings)
        self._digests = digests

    def objects(self, prefix: str, digest: str | None = None) -> tuple[HubObject, ...]:
        return tuple(
            replace(item, sha256=self._digests[item.path])
            for item in super().objects(prefix, digest)
        )


async def ours(order: Order) -> dict[str, float]:
    """As the agent does it: in threads beside its event loop, whose lag is measured meanwhile."""
    settings = S3Settings(
        endpoint=order.endpoint,
        bucket=order.bucket,
        keys=KEYS,
    )
    store = _WithCatalog(settings, order.digests)
    cache = ModelCache(Path(order.target), store)
    cache.open()
    ticker = asyncio.create_task(_lags())
    await asyncio.sleep(0)
    before = os.times()
    began = time.monotonic()
    await in_daemon_thread(lambda: _fetch(cache, order.prefix), name="fetch")
    seconds = time.monotonic() - began
    after = os.times()
    ticker.cancel()
    lags = sorted(await _ended(ticker))
    store.close()
    return {
        "seconds": seconds,
        "cpu_seconds": sum(after[:4]) - sum(before[:4]),  # with the process that fetched
        "lag_max_seconds": lags[-1],
        "lag_p999_seconds": lags[int(len(lags) * 0.999)],
        "ticks": len(lags),
    }


def fget_object(order: Order) -> dict[str, float]:
    """minio-py's own, one file after the other; then the hash and the fsync that it leaves out."""
    return _by_fget_object(order, at_once=1)


def fget_object_abreast(order: Order) -> dict[str, float]:
    """The same, eight files at once."""
    return _by_fget_object(order, at_once=8)


async def idle(order: Order) -> dict[str, float]:
    """The same ticker in a process that does nothing else, until stdin ends."""
    ticker = asyncio.create_task(_lags())
    await asyncio.to_thread(sys.stdin.read)
    ticker.cancel()
    lags = sorted(await _ended(ticker))
    return {"lag_max_seconds": lags[-1], "lag_p999_seconds": lags[int(len(lags) * 0.999)]}


def _fetch(cache: ModelCache, prefix: str) -> None:
    cache.fetch(ModelSpec(source=prefix))


def _by_fget_object(order: Order, *, at_once: int) -> dict[str, float]:
    client = Minio(
        order.endpoint.removeprefix("http://"),
        access_key=ACCESS_KEY,
        secret_key=SECRET_KEY,
        secure=False,
        region="us-east-1",
    )
    began = time.monotonic()

    def get(path: str) -> None:
        target = f"{order.target}/{path}"
        client.fget_object(
            bucket_name=order.bucket, object_name=f"{order.prefix}/{path}", file_path=target
        )
        finish(target, order.digests[path])

    with ThreadPoolExecutor(at_once) as pool:
        for _ in pool.map(get, order.digests):
            pass
    return {"seconds": time.monotonic() - began}


def finish(target: str, digest: str) -> None:
    """Compare the sha256, and bring the file to the disk."""
    found = sha256()
    buffer = memoryview(bytearray(_PIECE_BYTES))
    with open(target, "rb+", buffering=0) as file:
        while count := file.readinto(buffer):
            found.update(buffer[:count])
        os.fsync(file.fileno())
    if found.hexdigest() != digest:
        raise ValueError(f"{target} is damaged")


async def _lags(seconds: float = _TICK_SECONDS) -> list[float]:
    lags = []
    try:
        while True:
            before = time.monotonic()
            await asyncio.sleep(seconds)
            lags.append(time.monotonic() - before - seconds)
    except asyncio.CancelledError:
        return lags


async def _ended(ticker: "asyncio.Task[list[float]]") -> Sequence[float]:
    return await ticker or [0.0]


def main() -> None:
    how = sys.argv[1]
    order = Order(**json.loads(sys.stdin.readline()))
    measured: dict[str, Any]
    if how in ("ours", "idle"):
        measured = uvloop.run({"ours": ours, "idle": idle}[how](order))
    else:
        measured = {"fget": fget_object, "fget-8": fget_object_abreast}[how](order)
    print(json.dumps(measured))


if __name__ == "__main__":
    main()
