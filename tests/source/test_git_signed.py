"""Only commits that somebody has signed who may."""

import os
import subprocess
from pathlib import Path

import pytest

from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import parse_address
from reconciler.source.git_reader import GitReader
from reconciler.source.snapshot import Snapshot
from tests.source.git_repository import Repository


def make_key(folder: Path, name: str) -> Path:
    path = folder / name
    words = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)]
    subprocess.run(words, check=True, timeout=30)
    return path


def allow(signers: Path, *keys: Path) -> None:
    lines = [
        f'{key.name}@example.com namespaces="git" {key.with_name(f"{key.name}.pub").read_text()}'
        for key in keys
    ]
    fresh = signers.with_name("fresh")
    fresh.write_text("".join(lines))
    fresh.rename(signers)


def push(repository: Repository, number: str, key: Path | None) -> str:
    """A commit that is signed with `key`, or not at all."""
    repository.write({"m/a.yaml": number})
    if key is None:
        return repository.push()
    repository.run("config", "gpg.format", "ssh")
    repository.run("config", "user.signingKey", str(key))
    return repository.push(None, "--gpg-sign")


def text(snapshot: Snapshot) -> str:
    assert snapshot.error is None
    (file,) = snapshot.files
    assert file.content is not None
    return file.content.decode()


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(root=tmp_path / "remote")


def test_takes_commits_of_those_who_may_sign_alone(repository: Repository, tmp_path: Path) -> None:
    ann, eve = make_key(tmp_path, "ann"), make_key(tmp_path, "eve")
    signers = tmp_path / "allowed signers"
    allow(signers, ann)
    access = GitAccess(allowed_signers=signers, search_path=os.environ["PATH"], timeout_seconds=30)
    address = parse_address(repository.url("ref=main&path=m"))
    reader = GitReader(address, access, tmp_path / "scratch")
    push(repository, "1", ann)
    assert text(reader.read().snapshot) == "1"

    unsigned = push(repository, "2", None)
    read = reader.read()
    assert (read.reached, read.snapshot.files, read.snapshot.revision) == (True, (), unsigned)
    assert f"commit {unsigned[:12]} is refused: it is not signed" in str(read.snapshot.error)

    foreign = push(repository, "3", eve)
    said = str(reader.read().snapshot.error)
    assert f"commit {foreign[:12]} is refused: nobody in {signers} has the key" in said
    assert "SHA256:" in said

    allow(signers, ann, eve)
    assert text(reader.read().snapshot) == "3"


def test_refuses_a_commit_that_was_changed_after_it_was_signed(
    repository: Repository, tmp_path: Path
) -> None:
    ann = make_key(tmp_path, "ann")
    signers = tmp_path / "signers"
    allow(signers, ann)
    commit = push(repository, "1", ann)
    forged = repository.run("cat-file", "commit", commit).replace("\nchange", "\nforged")
    (repository.root / "forged").write_text(f"{forged}\n")
    words = ("hash-object", "-t", "commit", "-w", str(repository.root / "forged"))
    made = repository.run(*words)
    repository.run("push", "--quiet", "--force", "origin", f"{made}:refs/heads/main")
    access = GitAccess(allowed_signers=signers, search_path=os.environ["PATH"], timeout_seconds=30)
    reader = GitReader(
        parse_address(repository.url("ref=main&path=m")), access, tmp_path / "scratch"
    )
    read = reader.read()
    assert read.snapshot.revision == made
    assert "its signature is not good" in str(read.snapshot.error)


def test_says_that_the_file_of_signers_is_not_there(repository: Repository, tmp_path: Path) -> None:
    access = GitAccess(allowed_signers=tmp_path / "gone", search_path=os.environ["PATH"])
    reader = GitReader(parse_address(repository.url()), access, tmp_path / "scratch")
    assert f"cannot read {tmp_path / 'gone'}" in str(reader.read().snapshot.error)
