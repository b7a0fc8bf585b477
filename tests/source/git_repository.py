"""A real repository, changed as people change it: commits, tags, rewritten history."""

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from reconciler.source.git_reader import GitReader


@dataclass(kw_only=True)
class Repository:
    """A bare repository at `bare`, and a work tree that pushes to it. Branch: main."""

    root: Path
    environment: dict[str, str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.root.mkdir(parents=True, exist_ok=True)
        config = self.root / "gitconfig"
        config.write_text(
            "[user]\nname = Ann\nemail = ann@example.com\n[init]\ndefaultBranch = main\n"
            '[protocol "file"]\nallow = always\n'
        )
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.root),
            "GIT_CONFIG_GLOBAL": str(config),
            "GIT_CONFIG_NOSYSTEM": "1",
        }
        self.run("init", "--quiet", "--bare", str(self.bare), folder=self.root)
        self.run("config", "uploadpack.allowFilter", "true", folder=self.bare)
        self.run("clone", "--quiet", str(self.bare), str(self.work), folder=self.root)

    @property
    def bare(self) -> Path:
        return self.root / "repository.git"

    @property
    def work(self) -> Path:
        return self.root / "work"

    def url(self, query: str = "") -> str:
        return f"git+file://{self.bare}{'?' if query else ''}{query}"

    def run(self, *words: str, folder: Path | None = None) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=folder or self.work,
            env=self.environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=30,
        )
        return done.stdout.strip()

    def grow(self, commits: int, *, size: int) -> None:
        """Let main have so many commits more, each with other bytes in the same large file."""
        told = bytearray()
        for number in range(commits):
            told += b"commit refs/heads/main\ncommitter Ann <ann@example.com> 1 +0000\n"
            told += b"data 6\nchange\n"
            told += b"from refs/heads/main^0\n" if number == 0 else b""
            told += b"M 100644 inline large\ndata %d\n%b\n" % (size, os.urandom(size))
        subprocess.run(
            ["git", "fast-import", "--quiet"],
            cwd=self.bare,
            env=self.environment,
            input=bytes(told),
            check=True,
            timeout=60,
        )
        self.run("pull", "--quiet", "--ff-only")

    def write(self, files: dict[str, str]) -> None:
        for name, text in files.items():
            path = self.work / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def commit(self, *options: str) -> str:
        """Commit what the work tree holds now. Returns the commit's id; nothing is pushed."""
        self.run("add", "--all")
        self.run("commit", "--quiet", "--allow-empty", "--message", "change", *options)
        return self.run("rev-parse", "HEAD")

    def push(self, files: dict[str, str] | None = None, *options: str) -> str:
        """Write files, commit them, and push main. Returns the commit's id."""
        self.write(files or {})
        commit = self.commit(*options)
        self.run("push", "--quiet", "--force", "origin", "HEAD:refs/heads/main")
        return commit


def text(found: GitReader) -> str:
    """Of the only file that it reads."""
    snapshot = found.read().snapshot
    assert snapshot.error is None
    (file,) = snapshot.files
    assert file.content is not None
    return file.content.decode()


def error(found: GitReader) -> str:
    """Why it cannot be reached."""
    read = found.read()
    assert not read.reached
    assert read.snapshot.error is not None
    return read.snapshot.error
