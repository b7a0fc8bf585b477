"""`python -m tests.bench.cache [--gib N]`: a cold pull, against what else could do it.

Every contender fetches the same files from the same server into an empty folder, compares their
sha256 and brings them to the disk; all take turns, and the medians are printed.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from reconciler.hub.s3_connection import MAX_CONNECTIONS
from tests.bench.cache_pull import Order, finish
from tests.bench.cache_stores import (
    BUCKET,
    PREFIX,
    CannotStart,
    Origin,
    make_files,
    nginx_origin,
    rclone_origin,
)
from tests.s3_server import ACCESS_KEY, SECRET_KEY, rclone

_GIB = 1 << 30
_CAPS_BYTES = (100_000_000, 25_000_000)
"""The lower one leaves room on the machine for all connections at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One pull. `lag_seconds`: of an event loop in the same process, and of one beside it."""

    seconds: float
    cpu_seconds: float
    peak_bytes: int
    lag_seconds: float | None = None
    lag_beside_seconds: float | None = None


Contender = Callable[[Order], Run]


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    size_bytes = int(options.gib * _GIB)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=options.dir) as folder:
        root = Path(folder)
        digests = make_files(root, size_bytes)
        results = {}
        caps = {_capped(cap): cap for cap in _CAPS_BYTES}
        for name, serve in _origins(root).items():
            if options.only not in (None, name):
                continue
            try:
                with serve as origin:
                    runs = _measure(origin, root, digests, options.rounds)
            except CannotStart as exc:
                print(f"{name}: {exc}", file=sys.stderr)
                continue
            results[name] = {
                contender: [asdict(run) for run in all_] for contender, all_ in runs.items()
            }
            print(table(name, runs, size_bytes, caps.get(name)))
    if options.json:
        options.json.write_text(json.dumps({"bytes": size_bytes, "results": results}, indent=1))


def table(name: str, runs: dict[str, list[Run]], size_bytes: int, cap: int | None) -> str:
    """Medians of the rounds; the lag is the worst of them. `cap`: bytes a second, a connection."""
    of_cap = f" ÷ {MAX_CONNECTIONS} × {cap / 1e6:.0f} MB/s" if cap is not None else ""
    lines = [
        "",
        f"| from {name} | GB/s{of_cap} | CPU s a GiB | peak MB | loop lag ms (beside) |",
        "|---|---|---|---|---|",
    ]
    for contender, all_ in runs.items():
        seconds = statistics.median(run.seconds for run in all_)
        cpu = statistics.median(run.cpu_seconds for run in all_) / size_bytes * _GIB
        peak = max(run.peak_bytes for run in all_) / 1e6
        lags = [run.lag_seconds for run in all_ if run.lag_seconds is not None]
        beside = [run.lag_beside_seconds for run in all_ if run.lag_beside_seconds is not None]
        lag = f"{max(lags) * 1e3:.1f} ({max(beside) * 1e3:.1f})" if lags and beside else ""
        rate = size_bytes / seconds
        share = f" ({rate / cap / MAX_CONNECTIONS:.2f})" if cap is not None else ""
        lines.append(f"| {contender} | {rate / 1e9:.2f}{share} | {cpu:.2f} | {peak:.0f} | {lag} |")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench.cache")
    parser.add_argument("--gib", type=float, default=4.0, help="of all files together")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="the name of a server, as in the results")
    parser.add_argument("--dir", type=Path, help="where the files go: twice their size is needed")
    parser.add_argument("--json", type=Path, help="where the results go")
    return parser.parse_args()


def _origins(root: Path) -> dict[str, AbstractContextManager[Origin]]:
    return {
        "nginx": nginx_origin(root),
        **{_capped(cap): nginx_origin(root, limit=str(cap)) for cap in _CAPS_BYTES},
        "rclone serve s3": rclone_origin(root),
    }


def _capped(cap: int) -> str:
    return f"nginx, {cap / 1e6:.0f} MB/s a connection"


def _measure(
    origin: Origin, root: Path, digests: dict[str, str], rounds: int
) -> dict[str, list[Run]]:
    source = root / "buckets" / BUCKET / PREFIX
    contenders: dict[str, Contender] = {
        "cp": _by_command(lambda order: ["cp", "-r", f"{source}/.", order.target]),
        "xgen-model": _by_program("ours"),
        "fget_object": _by_program("fget"),
        "fget_object, 8 files at once": _by_program("fget-8"),
        "rclone copy": _by_command(_rclone_copy),
    }
    if shutil.which("s5cmd") is not None:
        contenders["s5cmd"] = _by_command(_s5cmd)
    runs: dict[str, list[Run]] = {name: [] for name in contenders}
    for number in range(rounds):
        names = list(contenders)
        for name in names[number % len(names) :] + names[: number % len(names)]:
            with _target(root) as target:
                order = Order(
                    endpoint=origin.endpoint,
                    bucket=BUCKET,
                    prefix=PREFIX,
                    target=str(target),
                    digests=digests,
                )
                runs[name].append(contenders[name](order))
    return runs


@contextmanager
def _target(root: Path) -> Iterator[Path]:
    target = root / "target"
    target.mkdir()
    os.sync()  # what the last one left to write is not this one's
    try:
        yield target
    finally:
        shutil.rmtree(target)


def _by_program(how: str) -> Contender:
    """A pull of tests.bench.cache_pull, which measures its own time: without Python's start."""

    def run(order: Order) -> Run:
        argv = [sys.executable, "-m", "tests.bench.cache_pull"]
        said = json.dumps(asdict(order)) + "\n"
        pipe = subprocess.PIPE
        with subprocess.Popen([*argv, "idle"], stdin=pipe, stdout=pipe, text=True) as idle:
            assert idle.stdin is not None
            idle.stdin.write(said)
            idle.stdin.flush()
            measured, cpu_seconds, peak_bytes = _run([*argv, how], said)
            answer, _ = idle.communicate()
        found = json.loads(measured)
        return Run(
            seconds=found["seconds"],
            cpu_seconds=found.get("cpu_seconds", cpu_seconds),
            peak_bytes=peak_bytes,
            lag_seconds=found.get("lag_max_seconds"),
            lag_beside_seconds=json.loads(answer)["lag_max_seconds"],
        )

    return run


def _by_command(argv_for: Callable[[Order], list[str]]) -> Contender:
    """A tool that neither compares nor syncs: both are done after it, eight files at once."""

    def run(order: Order) -> Run:
        before = os.times()
        began = time.monotonic()
        _, cpu_seconds, peak_bytes = _run(argv_for(order), "")
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(
                lambda path: finish(f"{order.target}/{path}", order.digests[path]), order.digests
            ):
                pass
        seconds = time.monotonic() - began
        after = os.times()
        checking = after.user + after.system - before.user - before.system
        return Run(
            seconds=seconds,
            cpu_seconds=cpu_seconds + checking,
            peak_bytes=peak_bytes,
        )

    return run


def _run(argv: list[str], said: str) -> tuple[str, float, int]:
    """What it printed, its CPU seconds, and its peak of memory in bytes."""
    environment = {
        **os.environ,
        "AWS_ACCESS_KEY_ID": ACCESS_KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        "AWS_REGION": "us-east-1",
    }
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True, env=environment) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(said)
        process.stdin.close()
        peak = [0]
        watch = threading.Thread(target=_watch_memory, args=(process.pid, peak))
        watch.start()
        printed = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        watch.join()
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{argv[0]} ended with {process.returncode}")
    return printed, usage.ru_utime + usage.ru_stime, peak[0]


def _watch_memory(pid: int, peak: list[int]) -> None:
    """The kernel's own maxima of a process and its children, looked at often.

    That of wait4 includes our own, before the exec.
    """
    while found := _peak_bytes(pid):
        children = Path(f"/proc/{pid}/task").glob("*/children")
        with suppress(OSError):
            pids = [int(child) for path in children for child in path.read_text().split()]
            found += sum(_peak_bytes(child) for child in pids)
        peak[0] = max(peak[0], found)
        time.sleep(0.02)


def _peak_bytes(pid: int) -> int:
    """0: it has ended."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) * 1024
    return 0


def _rclone_copy(order: Order) -> list[str]:
    remote = (
        f":s3,provider=Other,access_key_id={ACCESS_KEY},secret_access_key={SECRET_KEY},"
        f"endpoint='{order.endpoint}',force_path_style=true:{order.bucket}/{order.prefix}"
    )
    return [rclone(), "copy", "--config", os.devnull, "--transfers", "8", remote, order.target]


def _s5cmd(order: Order) -> list[str]:
    source = f"s3://{order.bucket}/{order.prefix}/*"
    return ["s5cmd", "--endpoint-url", order.endpoint, "cp", source, f"{order.target}/"]


if __name__ == "__main__":
    main()
