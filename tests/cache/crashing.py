"""Fetches a model again and again, and dies at the first, second, third … touch of the disk.

Run as a program: `python -m tests.cache.crashing HUB MODELS fresh|older`. After every death the
cache must hold nothing that looks complete and is not, and the next fetch must succeed. Prints how
many deaths there were.
"""

import os
import shutil
import signal
import sys
from pathlib import Path

from reconciler.cache.model_cache import ModelCache
from reconciler.hub.directory import DirectoryStore
from reconciler.plan.desired import ModelSpec

SPEC = ModelSpec(source="huggingface/org_name")
FILES = {
    "config.json": b"config",
    "model-00001-of-00002.safetensors": b"first" * 1000,
    "model-00002-of-00002.safetensors": b"second" * 1000,
    "1_Pooling/config.json": b"pooling",
}
TOUCHES = ("open", "os.", "shutil.")


def prepare(folder: Path, wrong: str | None = None) -> None:
    for name, content in FILES.items():
        path = folder / "huggingface/org_name" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"wrong" if name == wrong else content)


def die_at(count: int) -> None:
    left = count

    def hook(event: str, _arguments: object) -> None:
        nonlocal left
        if event.startswith(TOUCHES):
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(hook)


def check(cache: ModelCache) -> bool:
    """Whether the model is there; what is there must be whole."""
    files = cache.lookup(SPEC)
    if files is None:
        return False
    for name, content in FILES.items():
        assert (Path(files.path) / name).read_bytes() == content, name
    return True


def main(hub: Path, models: Path, start: str) -> None:
    prepare(hub)
    store = DirectoryStore(hub)
    deaths = 0
    while True:
        shutil.rmtree(models, ignore_errors=True)
        if start == "older":
            prepare(models, wrong="config.json")
        pid = os.fork()
        if pid == 0:
            die_at(deaths + 1)
            cache = ModelCache(models, store)
            cache.open()
            cache.fetch(SPEC)
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) or os.WEXITSTATUS(status) == 0, status
        cache = ModelCache(models, store)
        cache.open()
        check(cache)
        cache.fetch(SPEC)
        assert check(cache)
        assert [path.name for path in (models / ".partial").iterdir()] == [".lock"]
        assert (models / "huggingface/org_name").is_symlink()
        if not os.WIFSIGNALED(status):
            print(deaths)
            return
        deaths += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
