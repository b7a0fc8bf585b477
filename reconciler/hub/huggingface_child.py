"""The program that speaks to Hugging Face: its client never gets into the agent's process.

    python -P -m reconciler.hub.huggingface_child FD

FD is its end of a `Channel`. It is told {"repository", "revision", "folder"}, and after the listing
{"download": {PATH: {"size", "sha256", "git_sha1"}}}, as it was listed. It tells:

    {"listing": {"commit", "licence", "files": {PATH: {…}}}}
    {"bytes": N}                     so many bytes are there; N may fall back after a bad file
    {"done": true}
    {"failed": KIND, "cause": TEXT, "retry_after": SECONDS or null}    and the end

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
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from reconciler.hub.channel import Channel

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

    def all_there(self) -> None:
        self._parent.send({"bytes": sum(self._there.values())})


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
        from huggingface_hub import HfApi
        from huggingface_hub.hf_api import RepoFile
    except ImportError as exc:
        raise _Failed("no_client", str(exc)) from exc
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
    folder = Path(order["folder"])
    _clear_away(folder, wanted)
    with ThreadPoolExecutor(_FILES_AT_ONCE) as pool:
        futures = [
            pool.submit(_fetch, order["repository"], commit, folder, path, listed, told)
            for path, listed in wanted.items()
        ]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    told.all_there()


def _clear_away(folder: Path, wanted: _Json) -> None:
    """What a killed try left half done (it is never gone on with), and files of other commits."""
    for path in sorted(folder.rglob("*"), reverse=True):
        name = path.relative_to(folder).as_posix()
        is_client_s = name.partition("/")[0] == ".cache"
        if path.is_dir():
            if not is_client_s:
                with contextlib.suppress(OSError):  # not empty
                    path.rmdir()
        elif path.name.endswith(".incomplete") or not (is_client_s or name in wanted):
            path.unlink()


def _fetch(
    repository: str, commit: str, folder: Path, path: str, listed: _Json, told: _Told
) -> None:
    """Twice at the most: a file that is bad is fetched anew."""
    from huggingface_hub import hf_hub_download

    problem: str | None = None
    for _ in range(2):
        hf_hub_download(
            repository,
            path,
            revision=commit,
            local_dir=folder,
            tqdm_class=_bar(path, listed["size"], told),
        )
        problem = _problem(folder / path, path, listed, told)
        if problem is None:
            told.has(path, listed["size"])
            return
        (folder / path).unlink()
        told.has(path, 0)
    raise _Failed("damaged", f"{path}: {problem}")


def _problem(file: Path, path: str, listed: _Json, told: _Told) -> str | None:
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
            told.has(path, size)
    return None if found.hexdigest() == meant else "its digest is not the one that is listed"


def _bar(path: str, size: int, told: _Told) -> type:
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
            told.has(path, max(0, min(self.n, size)))

        def update_transfer(self, *_: object) -> None:
            """That this exists makes the client count what is written, in one bar."""

        def __getattr__(self, name: str) -> Any:
            """Whatever else is there to draw."""
            if name.startswith("__"):
                raise AttributeError(name)
            return lambda *_, **__: None

    return Bar


def _failure(error: Exception) -> _Json:
    kind, cause = _kind(error)
    return {"failed": kind, "cause": cause, "retry_after": _retry_after(error)}


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
