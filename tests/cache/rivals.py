"""Agents, each a process of its own, that fetch into one models folder and wait midway.

Run as a program: `python -m tests.cache.rivals HUB MODELS NODE BUDGET`. Every line on stdin is a
prefix to fetch, without an end when its first bytes are there: until the next line comes. What
became of it is a line on stdout: `coming`, `here`, or why it was refused.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from reconciler.cache.budget import Budget
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.pin_board import Owner
from reconciler.errors import Transient
from reconciler.hub.directory import DirectoryStore
from tests.cache.specs import spec


@dataclass(frozen=True, kw_only=True)
class Rival:
    process: subprocess.Popen[str]

    def say(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()

    def answer(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().rstrip("\n")


@contextmanager
def rival(hub: Path, models: Path, node: str, budget_bytes: int) -> Iterator[Rival]:
    argv = [sys.executable, "-m", __name__, str(hub), str(models), node, str(budget_bytes)]
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield Rival(process=process)
        finally:
            process.kill()


def main(hub: str, models: str, node: str, budget_bytes: str) -> None:
    cache = ModelCache(
        Path(models),
        DirectoryStore(Path(hub)),
        owner=Owner(node=node, data_dir=f"/data/{node}"),
        budget=Budget(size_bytes=int(budget_bytes)),
    )
    cache.open()
    waited = False

    def wait(done: int, _total: int) -> None:
        nonlocal waited
        if done and not waited:
            waited = True
            print("coming", flush=True)
            sys.stdin.readline()

    while line := sys.stdin.readline():
        waited = False
        try:
            cache.fetch(spec(line.rstrip("\n")), on_progress=wait)
            print("here", flush=True)
        except Transient as exc:
            print(exc, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
