"""A bare repository with one commit in it, as scratch: whatever is wrong with it, a new one helps.

ls-remote ─▶ moved? ─▶ fetch --depth 1, no contents ─▶ ls-tree ─▶ fetch what is read ─▶ cat-file

It is made anew at each start, after each command that failed, and after some fetches or bytes, so
that it does not grow. A lock that a killed git has left, or a git that outlives a killed agent, is
in a folder that nobody looks at any more. Blocking.
"""

import contextlib
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from reconciler.errors import Rejected, Transient
from reconciler.source.git_access import REMOTE, GitAccess, configuration, environment
from reconciler.source.git_address import GitAddress
from reconciler.source.git_command import GitCommand, GitFailed

_REF = "refs/xgen/wanted"
_PROMISED = (
    *("-c", "fetch.negotiationAlgorithm=noop"),
    *("-c", f"remote.{REMOTE}.promisor=true"),
    *("-c", f"remote.{REMOTE}.partialclonefilter=blob:none"),
)
"""For a fetch alone: where everybody knows it, whoever misses a file's content fetches it."""
_QUIET = ("--quiet", "--no-tags")
_MAX_FETCHES = 50
_MAX_TREE_BYTES = 16 << 20
_PREFIX = "repository-"
_MAX_NOTE_BYTES = 64 << 10
_NOTE_CHARACTERS = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeEntry:
    """One line of a folder. `mode`: as git has it, six digits. `name`: with lone surrogates."""

    mode: str
    id: str
    name: str


class GitRepository:
    """The scratch below `folder`, which is ours alone and private."""

    def __init__(self, address: GitAddress, access: GitAccess, folder: Path) -> None:
        self._address = address
        self._access = access
        self._folder = folder
        self._home = folder / "home"
        self._place: Path | None = None
        self._fetches = 0
        self.git = GitCommand(
            environment(address, access, self._home),
            timeout_seconds=access.timeout_seconds,
            max_file_bytes=access.max_bytes,
        )

    def open(self) -> None:
        """Write git's configuration, and take away what was left. Raises Transient."""
        shutil.rmtree(self._home, ignore_errors=True)
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            text = configuration(self._address, self._access)
            (self._home / ".gitconfig").write_text(text, encoding="utf-8")
        except OSError as exc:
            raise Transient(f"cannot write to {exc.filename}: {exc.strerror}") from exc
        self.discard()

    def discard(self) -> None:
        """Take the repository away; the next fetch makes another."""
        self._place = None
        with contextlib.suppress(OSError):
            for old in self._folder.glob(f"{_PREFIX}*"):
                shutil.rmtree(old, ignore_errors=True)

    def remote_refs(self) -> Mapping[str, str]:
        """The refs of the server that may be meant: full name → id. Raises GitFailed."""
        ref = self._address.ref
        wanted = [ref] if _is_full(ref) else [f"refs/heads/{ref}", f"refs/tags/{ref}"]
        listed = self.git.run("ls-remote", "--", REMOTE, *wanted, folder=self._home)
        lines = listed.decode("utf-8", "surrogateescape").splitlines()
        told = (line.partition("\t") for line in lines)
        found = {name: id for id, _, name in told}
        return {name: found[name] for name in wanted if name in found}

    def fetch(self, name: str) -> str:
        """Fetch the commit that a full name or an id leads to, and say its id.

        Raises Rejected where it leads to something else; GitFailed.
        """
        if self._place is None or self._fetches >= _MAX_FETCHES or self._is_large():
            self._make()
        self._fetches += 1
        words = ("--depth=1", *_QUIET, "--", REMOTE, f"+{name}:{_REF}")
        self._run("fetch", *words, config=_PROMISED)
        try:
            return self._run("rev-parse", "--verify", f"{_REF}^{{commit}}").decode().strip()
        except GitFailed as exc:
            raise Rejected(f"{name} leads to no commit") from exc

    def entries(self, tree: str) -> Sequence[TreeEntry]:
        """A folder, or a commit's root, by id. Raises GitFailed."""
        listed = self._run("ls-tree", "-z", "--full-tree", tree, max_bytes=_MAX_TREE_BYTES)
        return [_entry(line) for line in listed.split(b"\0") if line]

    def sizes(self, ids: Sequence[str]) -> Mapping[str, int]:
        """How large the contents are, in bytes, of those that are here or can be fetched."""
        here = self._sizes(ids)
        if missing := [each for each in dict.fromkeys(ids) if each not in here]:
            words = (*_QUIET, "--stdin", "--", REMOTE)
            self._run("fetch", *words, config=_PROMISED, stdin=_lines(missing))
            here = self._sizes(ids)
        return here

    def contents(self, sizes: Mapping[str, int]) -> Mapping[str, bytes]:
        """The contents of these ids, of which `sizes` told. Raises GitFailed."""
        max_bytes = sum(sizes.values()) + 200 * len(sizes)
        printed = self._run("cat-file", "--batch", stdin=_lines(sizes), max_bytes=max_bytes)
        found: dict[str, bytes] = {}
        at = 0
        for id, size in sizes.items():
            start = printed.index(b"\n", at) + 1
            if printed[at:start].split() != [id.encode(), b"blob", str(size).encode()]:
                raise GitFailed(f"git cat-file said something else of {id}")
            found[id] = printed[start : start + size]
            at = start + size + 1
        return found

    def note(self, commit: str) -> str:
        """Its subject and author, of what is here; empty where git does not tell."""
        words = ("log", "-1", "--no-show-signature", "--no-mailmap", "--format=%s (%an)", commit)
        try:
            told = self._run(*words, max_bytes=_MAX_NOTE_BYTES)
        except GitFailed:
            return ""
        text = "".join(each for each in told.decode("utf-8", "replace") if each.isprintable())
        return text if len(text) <= _NOTE_CHARACTERS else f"{text[: _NOTE_CHARACTERS - 1]}…"

    def verify(self, commit: str) -> None:
        """Raises GitFailed unless it has a good signature of an allowed signer."""
        self._run("verify-commit", commit)

    def _sizes(self, ids: Sequence[str]) -> dict[str, int]:
        listed = self._run("cat-file", "--batch-check", stdin=_lines(ids)).decode()
        told = [line.split() for line in listed.splitlines()]
        return {id: int(rest[1]) for id, *rest in told if rest[0] == "blob"}

    def _is_large(self) -> bool:
        """Whether another fetch on top of it might take more than twice the bound."""
        packs = (self._where() / "objects/pack").glob("*")
        return sum(_size(path) for path in packs) > self._access.max_bytes

    def _make(self) -> None:
        self.discard()
        try:
            place = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=self._folder))
        except OSError as exc:
            raise Transient(f"cannot write to {self._folder}: {exc.strerror}") from exc
        self.git.run("init", "--quiet", "--bare", "--template=", ".", folder=place)
        self._place, self._fetches = place, 0

    def _run(
        self,
        verb: str,
        *words: str,
        config: Sequence[str] = (),
        stdin: bytes = b"",
        max_bytes: int = 1 << 20,
    ) -> bytes:
        return self.git.run(
            verb, *words, folder=self._where(), config=config, stdin=stdin, max_bytes=max_bytes
        )

    def _where(self) -> Path:
        assert self._place is not None, "nothing was fetched yet"
        return self._place


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _is_full(ref: str) -> bool:
    return ref == "HEAD" or ref.startswith("refs/")


def _lines(ids: Sequence[str] | Mapping[str, int]) -> bytes:
    return "".join(f"{id}\n" for id in ids).encode()


def _entry(line: bytes) -> TreeEntry:
    about, _, name = line.partition(b"\t")
    mode, _, id = about.decode().split(" ")
    return TreeEntry(mode=mode, id=id, name=name.decode("utf-8", "surrogateescape"))
