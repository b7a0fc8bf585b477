"""The program that speaks to Hugging Face: its client never gets into the agent's process.

    python -P -m reconciler.hub.huggingface_child FD

FD is its end of a `Channel`. It is told {"repository", "revision", "folder", "partial"}, and after
the listing {"download": {PATH: {"size", "sha256", "git_sha1"}}}, as it was listed. It tells:

    {"listing": {"commit", "licence", "files": {PATH: {…}}}}
    {"bytes": N}                     so many are there; at first, those of earlier tries. N may fall
                                     back after a bad file
    {"done": true}
    {"failed": KIND, "cause": TEXT, "retry_after": SECONDS or null, "has_token": BOOL}  and the end

Every file is compared with the digest that Hugging Face lists, one of an earlier try too. Token
and mirror come by the environment (HF_TOKEN, HF_TOKEN_PATH, HF_ENDPOINT). It dies with its parent.
"""

import contextlib
import ctypes
import errno
import hashlib
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reconciler.hub.channel import Channel
from reconciler.hub.huggingface_file import Listed, Remote, complete, partial_name

_PR_SET_PDEATHSIG = 1
_FILES_AT_ONCE = 4
_TELL_SECONDS = 0.2
_BLOCK_BYTES = 4 * 1024 * 1024
_Json = dict[str, Any]


class _Failed(Exception):
    """`kind`: one that `huggingface_failures` has words for."""

    def __init__(self, kind: str, cause: str) -> None:
        super().__init__(cause)
        self.kind = kind


class _Told:
    """How far it is, told to the parent from any thread."""

    def __init__(self, parent: Channel) -> None:
        self._parent = parent
        self._lock = threading.Lock()
        self._there: dict[str, int] = {}
        self._told_at = 0.0

    def has(self, path: str, count: int) -> None:
        """So many bytes of a file are there. Said again while it is compared: a sign of life."""
        with self._lock:
            self._there[path] = count
            now = time.monotonic()
            if now - self._told_at < _TELL_SECONDS:
                return
            self._told_at = now
            done = sum(self._there.values())
        self._parent.send({"bytes": done})

    def preset(self, path: str, count: int) -> None:
        self._there[path] = count

    def now(self) -> None:
        """Before the first download, and after the last, or a failure."""
        with self._lock:
            done = sum(self._there.values())
        self._parent.send({"bytes": done})


def main(arguments: list[str]) -> int:
    # The thread that started us waits for us, so its end is our parent's end.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    parent = Channel(socket.socket(fileno=int(arguments[0])))
    try:
        order = _told_by(parent)
        listing = _list(order["repository"], order["revision"])
        parent.send({"listing": listing})
        wanted = _told_by(parent)["download"]
        _download(order, listing["commit"], wanted, _Told(parent))
        parent.send({"done": True})
    except EOFError:
        return 2  # the parent is gone
    except Exception as exc:  # noqa: BLE001  the process's boundary: the parent is told
        parent.send(_failure(exc))
        return 1
    return 0


def _told_by(parent: Channel) -> _Json:
    while (message := parent.receive()) is None:
        pass
    return message


def _list(repository: str, revision: str | None) -> _Json:
    try:
        from huggingface_hub import HfApi, get_token
        from huggingface_hub.hf_api import RepoFile
    except ImportError as exc:
        raise _Failed("no_client", str(exc)) from exc
    if any(not "!" <= letter <= "~" for letter in get_token() or ""):
        raise _Failed("odd_token", "")  # the client's own error would show some of it
    api = HfApi()
    info = api.model_info(repository, revision=revision)
    entries = api.list_repo_tree(repository, recursive=True, revision=info.sha)
    files = {
        entry.path: {
            "size": entry.size,
            "sha256": entry.lfs.sha256 if entry.lfs else None,
            "git_sha1": None if entry.lfs else entry.blob_id,
        }
        for entry in entries
        if isinstance(entry, RepoFile)
    }
    card: Any = info.card_data or {}
    licence = card.get("license")
    if licence == "other":
        licence = card.get("license_name") or licence
    named = licence if isinstance(licence, str) else None
    return {"commit": info.sha, "licence": named, "files": files}


def _download(order: _Json, commit: str, wanted: _Json, told: _Told) -> None:
    files, partial = Path(order["folder"]), Path(order["partial"])
    partial.mkdir(exist_ok=True)
    _clear_away(files, wanted.keys())
    _clear_away(partial, {partial_name(path, listed) for path, listed in wanted.items()})
    fetches = [
        _Fetch(
            remote=Remote(repository=order["repository"], commit=commit, path=path, listed=listed),
            file=files / path,
            partial=partial / partial_name(path, listed),
            told=told,
        )
        for path, listed in wanted.items()
    ]
    for fetch in fetches:
        told.preset(fetch.remote.path, fetch.left())
    told.now()
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        futures = [pool.submit(fetch.run) for fetch in fetches]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        finally:
            told.now()


def _clear_away(folder: Path, wanted: Collection[str]) -> None:
    """What other commits and other choices have left."""
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            with contextlib.suppress(OSError):  # not empty
                path.rmdir()
        elif path.relative_to(folder).as_posix() not in wanted:
            path.unlink()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fetch:
    """A file, and what there may be of it. It grows in `partial`."""

    remote: Remote
    file: Path
    partial: Path
    told: _Told

    def left(self) -> int:
        """What an earlier try has left."""
        there = next((path for path in (self.file, self.partial) if path.exists()), None)
        return 0 if there is None else min(there.stat().st_size, self.remote.listed["size"])

    def run(self) -> None:
        """Twice at the most: a file that is bad is fetched anew."""
        problem: str | None = None
        for _ in range(2):
            if not self.file.exists():
                complete(self.partial, self.remote, self._has)
                self.file.parent.mkdir(parents=True, exist_ok=True)
                self.partial.replace(self.file)
            problem = _problem(self.file, self.remote.listed, self._has)
            if problem is None:
                return
            self.file.unlink()
            self._has(0)
        raise _Failed("damaged", f"{self.remote.path}: {problem}")

    def _has(self, count: int) -> None:
        self.told.has(self.remote.path, min(count, self.remote.listed["size"]))


def _problem(file: Path, listed: Listed, has: Callable[[int], None]) -> str | None:
    """How a file differs from what was listed."""
    size = file.stat().st_size
    if size != listed["size"]:
        return f"it has {size} bytes, not {listed['size']}"
    if listed["sha256"] is not None:
        found, meant = hashlib.sha256(), listed["sha256"]
    elif listed["git_sha1"] is not None:
        found, meant = hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False), listed["git_sha1"]
    else:
        return None
    with file.open("rb") as source:
        while block := source.read(_BLOCK_BYTES):
            found.update(block)
            has(size)
    return None if found.hexdigest() == meant else "its digest is not the one that is listed"


def _failure(error: Exception) -> _Json:
    kind, cause = _kind(error)
    return {
        "failed": kind,
        "cause": cause,
        "retry_after": _retry_after(error),
        "has_token": kind != "no_client" and _has_token(),
    }


def _has_token() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


def _kind(error: BaseException) -> tuple[str, str]:
    if isinstance(error, _Failed):
        return error.kind, str(error)
    from huggingface_hub import errors

    by_type: tuple[tuple[type[BaseException], str], ...] = (
        (errors.GatedRepoError, "gated"),
        (errors.RepositoryNotFoundError, "no_repository"),
        (errors.DisabledRepoError, "disabled"),
        (errors.RevisionNotFoundError, "no_revision"),
        (errors.RemoteEntryNotFoundError, "no_file"),
        (errors.OfflineModeIsEnabled, "offline"),
    )
    for each in _chain(error):
        for kind_of, kind in by_type:
            if isinstance(each, kind_of):
                return kind, _line(each)
        if isinstance(each, errors.HfHubHTTPError):
            return _kind_of_answer(each)
        if isinstance(each, OSError) and each.errno in (errno.ENOSPC, errno.EDQUOT):
            return "disk", each.strerror or "no space left"
        if type(each).__module__.partition(".")[0] in ("httpx", "httpx2"):
            return "network", _line(each)
    return "unexpected", _line(error)


def _kind_of_answer(error: Any) -> tuple[str, str]:
    status = error.response.status_code
    kinds = {401: "token", 403: "forbidden", 429: "rate_limit"}
    said = getattr(error, "server_message", None)
    return kinds.get(status, "answer"), f"status {status}" + (f": {said}" if said else "")


def _retry_after(error: BaseException) -> float | None:
    for each in _chain(error):
        response = getattr(each, "response", None)
        if response is not None:
            with contextlib.suppress(KeyError, ValueError):
                return float(response.headers["retry-after"])
    return None


def _chain(error: BaseException | None) -> list[BaseException]:
    """The error, then what caused it: the client wraps the cause that matters."""
    found: list[BaseException] = []
    while error is not None and error not in found:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


def _line(error: BaseException) -> str:
    """One line of it, whatever it says."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:500]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
