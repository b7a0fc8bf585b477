"""One file of Hugging Face, gone on with where an earlier try was cut off.

The client's own download begins each file anew (huggingface_hub PR #4228), so what is used of it is
the layer below, which takes a file that has its first bytes already: `http_get`. Xet's store has no
such layer, and serves every file over HTTP, too. The client is imported only when a file is
fetched: the agent's side names partial files, too.
"""

import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

Listed = Mapping[str, Any]
"""{"size", "sha256", "git_sha1"} of a file at Hugging Face; a digest may be None."""

_RANGE_NOT_SATISFIABLE = 416
_BLOCK_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Remote:
    """`path`, in a repository at a commit."""

    repository: str
    commit: str
    path: str
    listed: Listed


def partial_name(path: str, listed: Listed) -> str:
    """Of the file that a download grows in. Other content has another name (huggingface_hub#1498: a
    resume appends to a wrong file), and so has another file with the same content."""
    content = listed["sha256"] or listed["git_sha1"]
    return hashlib.sha256(f"{path}\0{content}\0{listed['size']}".encode()).hexdigest() + ".partial"


def complete(partial: Path, remote: Remote, on_bytes: Callable[[int], None]) -> None:
    """Fetch what `partial` lacks. `on_bytes`: told how many bytes of the file are there.

    Raises the client's errors; what came by then stays. Whether it is the file that is meant is the
    caller's to judge.
    """
    from huggingface_hub import errors

    with os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT, 0o640), "r+b") as file:
        try:
            _append(file, remote, on_bytes)
        except errors.HfHubHTTPError as exc:
            if exc.response.status_code != _RANGE_NOT_SATISFIABLE:
                raise
            file.truncate(0)  # the other side's file is shorter than what is here: not this one
            _append(file, remote, on_bytes)


def _append(file: BinaryIO, remote: Remote, on_bytes: Callable[[int], None]) -> None:
    size = remote.listed["size"]
    there = file.seek(0, os.SEEK_END)
    if there > size:
        there = file.truncate(0)
        file.seek(0)
    on_bytes(there)
    if there == size:
        return
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.file_download import http_get

    # Documented there, and not marked so.
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    # What has not filled a block is lost with a cut, and not seen until then: theirs are 10 MiB.
    constants.DOWNLOAD_CHUNK_SIZE = _BLOCK_BYTES
    http_get(  # a server that does not know ranges sends all of it: it begins anew then
        hf_hub_url(remote.repository, remote.path, revision=remote.commit),
        file,
        resume_size=there,
        headers=build_hf_headers(),
        displayed_filename=remote.path,
        tqdm_class=_bar(size, on_bytes),
    )


def _bar(size: int, on_bytes: Callable[[int], None]) -> type:
    """A progress bar of one file, in the shape that the client asks for; it draws nothing."""

    class Bar:
        def __init__(self, *, total: int | None = None, initial: int = 0, **_: object) -> None:
            self.total = total
            self.n = initial

        def __enter__(self) -> "Bar":
            return self

        def __exit__(self, *_: object) -> None:
            return

        def update(self, count: float | None = 1) -> None:
            self.n += int(count or 0)
            on_bytes(max(0, min(self.n, size)))

        def __getattr__(self, name: str) -> Any:
            """Whatever else is there to draw."""
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *_, **__: None

    return Bar
