"""One ref and one path of a git repository, read as often as it is asked. Blocking."""

from dataclasses import replace
from pathlib import Path

from reconciler.errors import Rejected, XgenError
from reconciler.source.asking import Answer
from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import GitAddress
from reconciler.source.git_command import GitFailed, GitTookTooLong, GitWroteTooMuch
from reconciler.source.git_failures import cause_of
from reconciler.source.git_listing import read_commit
from reconciler.source.git_repository import GitRepository
from reconciler.source.git_signature import check_signature, stamp_of
from reconciler.source.snapshot import Snapshot


class GitReader:
    """Reads into `folder`, which is ours alone. `close` may come from any thread."""

    def __init__(self, address: GitAddress, access: GitAccess, folder: Path) -> None:
        self._address = address
        self._access = access
        self._repository = GitRepository(address, access, folder)
        self._opened = False
        self._last = Snapshot(location=address.shown, revision="")
        self._standing: object = None

    def read(self) -> Answer:
        """What the ref holds now. Never raises for what the world is like."""
        try:
            return Answer(snapshot=self._read(), reached=True)
        except Rejected as exc:
            snapshot = self._failed(str(exc))
            return Answer(snapshot=snapshot, reached=True)
        except GitFailed as exc:
            return Answer(snapshot=self._failed(cause_of(exc)), reached=False)
        except XgenError as exc:
            return Answer(snapshot=self._failed(str(exc)), reached=False)

    def close(self) -> None:
        """Kill a git that runs; a read that goes on fails."""
        self._repository.git.close()

    def discard(self) -> None:
        """Take away what is on disk."""
        self._repository.discard()

    def _failed(self, cause: str) -> Snapshot:
        """The revision stays that of the last commit that was looked at."""
        shown = self._address.shown
        return Snapshot(
            location=shown, revision=self._last.revision, error=f"cannot read {shown}: {cause}"
        )

    def _read(self) -> Snapshot:
        if not self._opened:
            self._repository.open()
            self._opened = True
        stamps = [stamp_of(path) for path in self._access.needed(self._address)]
        name, tip = self._tip()
        # A signer who was added makes a commit good that was refused.
        standing = (name, tip, stamps if self._access.allowed_signers else None)
        if standing != self._standing:
            self._last = self._taken(name, tip)
            self._standing = standing
        return self._last

    def _tip(self) -> tuple[str, str]:
        """The full name that is meant, and what it stands for on the server now."""
        ref = self._address.ref
        if (commit := self._address.commit) is not None:
            return commit, commit
        found = self._repository.remote_refs()
        if len(found) > 1:
            both = " and ".join(found)
            raise Rejected(f"the repository has {both}; write one of them out as the ref")
        if not found:
            raise Rejected(f"the repository has no branch and no tag {ref}{_hint(ref)}")
        return next(iter(found.items()))

    def _taken(self, name: str, tip: str) -> Snapshot:
        try:
            return self._fetched(name)
        except GitTookTooLong:
            self._repository.discard()
            raise
        except GitWroteTooMuch as exc:
            self._repository.discard()
            failed = self._failed(_too_much(exc, self._access.max_bytes))
            # What a tag stands for is another object than its commit, as a rule.
            return failed if name.startswith("refs/tags/") else replace(failed, revision=tip)
        except GitFailed:
            # The server answers: what is on our disk may be the cause.
            self._repository.discard()
            return self._fetched(name)

    def _fetched(self, name: str) -> Snapshot:
        """What is wrong with the commit itself is an error of the snapshot, until it moves."""
        commit = self._repository.fetch(name)
        note = self._repository.note(commit)
        snapshot = Snapshot(location=self._address.shown, revision=commit, note=note)
        try:
            if self._access.allowed_signers is not None:
                check_signature(self._repository, commit, self._access.allowed_signers)
            files = read_commit(self._repository, commit, self._address.path)
        except Rejected as exc:
            return replace(snapshot, error=f"cannot read {self._address.shown}: {exc}")
        return replace(snapshot, files=files)


def _too_much(failure: GitWroteTooMuch, max_bytes: int) -> str:
    """It is not fetched again before the ref moves: what a commit holds stays the same."""
    all_of_it = (
        "; the server sends every file of the commit, since it has no filters "
        "(uploadpack.allowFilter)"
        if failure.filterless
        else ""
    )
    return (
        f"it takes more than {max_bytes >> 20} MiB, the most that a fetch may bring "
        f"(--git-max-mib){all_of_it}"
    )


def _hint(ref: str) -> str:
    if ref == "HEAD":
        return ", since it is empty"
    is_short = 4 <= len(ref) < 40 and not ref.strip("0123456789abcdef")
    return "; a commit is named by all of its 40 digits" if is_short else ""
