"""Who has signed a commit, and whether that is somebody who may."""

import os
from pathlib import Path

from reconciler.errors import Rejected, Transient
from reconciler.source.git_command import GitFailed, GitTookTooLong
from reconciler.source.git_repository import GitRepository
from reconciler.source.names import shown_name


def check_signature(repository: GitRepository, commit: str, signers: Path) -> None:
    """Raises Rejected unless the commit has a good ssh signature of one of `signers`; GitFailed."""
    try:
        repository.verify(commit)
    except GitTookTooLong:
        raise
    except GitFailed as exc:
        raise Rejected(f"commit {commit[:12]} is refused: {_why(exc.said, signers)}") from exc


def stamp_of(file: Path) -> tuple[int, int, int]:
    """Another one after each change of the file. Raises Transient."""
    try:
        status = os.stat(file)
    except OSError as exc:
        raise Transient(f"cannot read {file}: {exc.strerror}") from exc
    return status.st_ino, status.st_mtime_ns, status.st_size


def _why(said: str, signers: Path) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    if not lines:
        return f"it is not signed; --git-allowed-signers wants a signature of one in {signers}"
    if any("No principal matched" in line for line in lines):
        key = next((line for line in lines if "signature with" in line), lines[0])
        return f"nobody in {signers} has the key that signed it ({shown_name(key)})"
    return f"its signature is not good ({shown_name('; '.join(lines))[:300]})"
