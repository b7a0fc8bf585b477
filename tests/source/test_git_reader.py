"""One ref and one path of a real repository: what is read, what is refused, and why."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.source.asking import Answer
from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import parse_address
from reconciler.source.git_listing import MAX_FILES
from reconciler.source.git_reader import GitReader
from reconciler.source.snapshot import Snapshot
from tests.source.git_repository import Repository

ReaderOf = Callable[..., GitReader]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(root=tmp_path / "remote")


@pytest.fixture
def reader_of(tmp_path: Path, repository: Repository) -> ReaderOf:
    def make(query: str = "ref=main&path=m", *, folder: str = "scratch") -> GitReader:
        access = GitAccess(search_path=os.environ["PATH"], timeout_seconds=30)
        return GitReader(parse_address(repository.url(query)), access, tmp_path / folder)

    return make


def texts(snapshot: Snapshot) -> dict[str, str]:
    return {file.name: (file.content or b"?").decode() for file in snapshot.files}


def good(read: Answer) -> dict[str, str]:
    assert read.reached, read
    assert read.snapshot.error is None
    return texts(read.snapshot)


def error(read: Answer) -> str:
    assert read.snapshot.files == ()
    assert read.snapshot.error is not None
    return read.snapshot.error


def test_reads_a_folder_as_a_directory_is_read(repository: Repository, reader_of: ReaderOf) -> None:
    commit = repository.push(
        {
            "m/b.yml": "b",
            "m/a.yaml": "a",
            "m/c.json": "c",
            "m/.hidden.yaml": "no",
            "m/README.md": "no",
            "m/below/d.yaml": "no",
            "other.yaml": "no",
        }
    )
    read = reader_of().read()
    assert good(read) == {"a.yaml": "a", "b.yml": "b", "c.json": "c"}
    assert read.snapshot.revision == commit
    assert read.snapshot.note == "change (Ann)"


def test_tells_a_commit_s_first_line_without_what_a_terminal_obeys(
    repository: Repository, reader_of: ReaderOf
) -> None:
    repository.write({"m/a.yaml": "a"})
    repository.run("add", "--all")
    repository.run("commit", "--quiet", "-m", f"\x1b[31mred {'x' * 200}\n\nmore of it")
    repository.run("push", "--quiet", "origin", "main")
    note = reader_of().read().snapshot.note
    assert note.startswith("[31mred xxx")
    assert (len(note), note[-1], "more" in note) == (120, "…", False)


def test_reads_one_file_and_the_root(repository: Repository, reader_of: ReaderOf) -> None:
    repository.push({"m/a.yaml": "a", "m/b.yaml": "b", "top.yaml": "t"})
    assert good(reader_of("path=m/b.yaml").read()) == {"m/b.yaml": "b"}
    assert good(reader_of("").read()) == {"top.yaml": "t"}


def test_follows_a_branch_over_pushes_and_rewritten_history(
    repository: Repository, reader_of: ReaderOf
) -> None:
    repository.push({"m/a.yaml": "1"})
    repository.push({"m/a.yaml": "2"})
    reader = reader_of()
    assert good(reader.read()) == {"a.yaml": "2"}
    repository.run("reset", "--hard", "--quiet", "HEAD~1")
    assert good(reader.read()) == {"a.yaml": "2"}
    commit = repository.push({"m/a.yaml": "3"}, "--amend")
    read = reader.read()
    assert good(read) == {"a.yaml": "3"}
    assert read.snapshot.revision == commit


@pytest.mark.parametrize("annotated", [False, True])
def test_follows_a_tag_that_moves(
    repository: Repository, reader_of: ReaderOf, annotated: bool
) -> None:
    kind = ["--annotate", "--message", "a tag"] if annotated else []
    reader = reader_of("ref=v1&path=m")
    for number in "12":
        commit = repository.push({"m/a.yaml": number})
        repository.run("tag", "--force", *kind, "v1")
        repository.run("push", "--quiet", "--force", "origin", "v1")
        read = reader.read()
        assert good(read) == {"a.yaml": number}
        assert read.snapshot.revision == commit


def test_stays_with_a_commit_and_asks_nobody_again(
    repository: Repository, reader_of: ReaderOf
) -> None:
    commit = repository.push({"m/a.yaml": "1"})
    repository.push({"m/a.yaml": "2"})
    reader = reader_of(f"ref={commit}&path=m")
    assert good(reader.read()) == {"a.yaml": "1"}
    shutil.rmtree(repository.bare)
    assert good(reader.read()) == {"a.yaml": "1"}


def test_asks_which_is_meant_where_a_branch_and_a_tag_share_a_name(
    repository: Repository, reader_of: ReaderOf
) -> None:
    repository.push({"m/a.yaml": "1"})
    repository.run("push", "--quiet", "origin", "HEAD:refs/tags/main")
    repository.push({"m/a.yaml": "2"})
    assert "refs/heads/main and refs/tags/main" in error(reader_of().read())
    assert good(reader_of("ref=refs/tags/main&path=m").read()) == {"a.yaml": "1"}
    assert good(reader_of("ref=refs/heads/main&path=m").read()) == {"a.yaml": "2"}


def test_names_a_ref_or_a_path_that_is_not_there_and_takes_it_up_when_it_comes(
    repository: Repository, reader_of: ReaderOf
) -> None:
    """Scenario 42: flux2#1577, stuck on a failed revision though a fix was pushed."""
    first = repository.push({"x.txt": "1"})
    by_branch, by_path = reader_of("ref=next&path=m", folder="1"), reader_of(folder="2")
    assert "no branch and no tag next" in error(by_branch.read())
    read = by_path.read()
    assert f"there is no m in commit {first[:12]}" in error(read)
    assert (read.reached, read.snapshot.revision) == (True, first)
    repository.push({"m/a.yaml": "1"})
    repository.run("push", "--quiet", "origin", "HEAD:refs/heads/next")
    assert good(by_branch.read()) == good(by_path.read()) == {"a.yaml": "1"}


def test_says_that_an_empty_repository_is_empty(reader_of: ReaderOf) -> None:
    read = reader_of("path=m").read()
    assert read.reached
    assert "since it is empty" in error(read)


def test_hints_that_a_short_commit_id_is_too_short(
    repository: Repository, reader_of: ReaderOf
) -> None:
    commit = repository.push({"m/a.yaml": "1"})
    assert "all of its 40 digits" in error(reader_of(f"ref={commit[:8]}&path=m").read())


def test_refuses_what_leads_out_of_the_commit_by_its_path(
    repository: Repository, reader_of: ReaderOf
) -> None:
    repository.push({"m/a.yaml": "a", "m/folder.yaml/x": "x"})
    (repository.work / "m/link.yaml").symlink_to("/etc/passwd")
    (repository.work / "linked").symlink_to("m")
    commit = repository.run("rev-parse", "HEAD")
    lfs = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12\n"
    repository.write({"m/lfs.yaml": lfs, "m/big.yaml": "x" * ((1 << 20) + 1)})
    repository.run("add", "--all")
    repository.run("update-index", "--add", "--cacheinfo", f"160000,{commit},m/sub.yaml")
    repository.run("update-index", "--add", "--cacheinfo", f"160000,{commit},module")
    repository.run("commit", "--quiet", "--message", "traps")
    repository.run("push", "--quiet", "origin", "HEAD:main")
    snapshot = reader_of().read().snapshot
    errors = {file.name: file.error for file in snapshot.files}
    assert errors.pop("a.yaml") is None
    assert errors == {
        "big.yaml": "cannot read m/big.yaml: it is larger than 1 MiB",
        "folder.yaml": "cannot read m/folder.yaml: it is a directory",
        "lfs.yaml": "cannot read m/lfs.yaml: it is a pointer to Git LFS, which is not fetched; "
        "commit the file itself",
        "link.yaml": "cannot read m/link.yaml: it is a symbolic link, and no link is followed "
        "in a git repository",
        "sub.yaml": "cannot read m/sub.yaml: it is a submodule, and those are not fetched",
    }
    assert "cannot follow linked " in error(reader_of("path=linked/a.yaml").read())
    assert "symbolic link" in error(reader_of("path=m/link.yaml").read())
    assert "submodule" in error(reader_of("path=module/a.yaml").read())
    assert "it is a file" in error(reader_of("path=m/a.yaml/x").read())


def test_refuses_too_many_files(repository: Repository, reader_of: ReaderOf) -> None:
    repository.push({f"m/{number:04}.yaml": "same" for number in range(MAX_FILES + 1)})
    assert f"there are {MAX_FILES + 1} files" in error(reader_of().read())
    (repository.work / "m/0000.yaml").unlink()
    repository.push()
    assert len(good(reader_of().read())) == MAX_FILES


def test_shows_names_that_no_terminal_can_take(repository: Repository, reader_of: ReaderOf) -> None:
    name = os.fsdecode(b"\xff\x1b[2J.yaml")
    repository.push({f"m/{name}": "a", "m/with blank.yaml": "b", "m/für.yaml": "c"})
    assert good(reader_of().read()) == {
        "\\xff\\x1b[2J.yaml": "a",
        "with blank.yaml": "b",
        "für.yaml": "c",
    }


@pytest.mark.parametrize("filters", [True, False])
def test_fetches_little_of_a_large_repository(
    repository: Repository, reader_of: ReaderOf, tmp_path: Path, filters: bool
) -> None:
    """Old servers give all that is in one commit; none gives the history."""
    repository.run("config", "uploadpack.allowFilter", str(filters).lower(), folder=repository.bare)
    size = 200_000
    for number in range(5):
        (repository.work / "blob").write_bytes(os.urandom(size))
        repository.push({"m/a.yaml": str(number)})
    assert good(reader_of().read()) == {"a.yaml": "4"}
    kept = sum(path.stat().st_size for path in (tmp_path / "scratch").rglob("*") if path.is_file())
    assert kept < (50_000 if filters else 2 * size)


@pytest.mark.slow
def test_does_not_grow_over_many_pushes(
    repository: Repository, reader_of: ReaderOf, tmp_path: Path
) -> None:
    reader = reader_of()
    most = packs = 0
    for number in range(60):
        repository.push({"m/a.yaml": str(number)})
        assert good(reader.read()) == {"a.yaml": str(number)}
        packs = len(list((tmp_path / "scratch").rglob("*.pack")))
        most = max(most, packs)
    assert packs < most


def test_makes_a_damaged_scratch_anew(
    repository: Repository, reader_of: ReaderOf, tmp_path: Path
) -> None:
    repository.push({"m/a.yaml": "1"})
    reader = reader_of()
    assert good(reader.read()) == {"a.yaml": "1"}
    damages: list[Callable[[Path], None]] = [_zero_all, _remove_all, _lock_all, shutil.rmtree]
    for number, damage in enumerate(damages, start=2):
        (scratch,) = (tmp_path / "scratch").glob("repository-*")
        damage(scratch)
        repository.push({"m/a.yaml": str(number)})
        assert good(reader.read()) == {"a.yaml": str(number)}


def _zero_all(scratch: Path) -> None:
    for path in scratch.rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            path.write_bytes(b"\0" * path.stat().st_size)


def _remove_all(scratch: Path) -> None:
    for path in scratch.rglob("*"):
        if path.is_file():
            path.unlink()


def _lock_all(scratch: Path) -> None:
    """As a git that was killed leaves it."""
    for name in ("shallow.lock", "HEAD.lock", "config.lock", "refs/xgen/wanted.lock"):
        (scratch / name).touch()


def test_starts_over_what_an_earlier_agent_has_left(
    repository: Repository, reader_of: ReaderOf, tmp_path: Path
) -> None:
    repository.push({"m/a.yaml": "1"})
    reader_of().read()
    _lock_all(next((tmp_path / "scratch").glob("repository-*")))
    assert good(reader_of().read()) == {"a.yaml": "1"}
    assert len(list((tmp_path / "scratch").glob("repository-*"))) == 1


def test_keeps_its_revision_while_the_repository_is_away(
    repository: Repository, reader_of: ReaderOf
) -> None:
    commit = repository.push({"m/a.yaml": "1"})
    reader = reader_of()
    reader.read()
    away = repository.bare.rename(repository.root / "away")
    read = reader.read()
    assert not read.reached
    assert read.snapshot.revision == commit
    assert "does not appear to be a git repository" in error(read)
    away.rename(repository.bare)
    assert good(reader.read()) == {"a.yaml": "1"}


def test_takes_nothing_of_the_users_git(
    repository: Repository,
    reader_of: ReaderOf,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A hook, an alias for the URL, a configuration in the environment: none of it is seen."""
    commit = repository.push({"m/a.yaml": "1"})
    mark = tmp_path / "hook-was-run"
    hook = tmp_path / "hooks" / "reference-transaction"
    hook.parent.mkdir()
    hook.write_text(f"#!/bin/sh\ntouch {mark}\n")
    hook.chmod(0o755)
    config = tmp_path / ".gitconfig"
    config.write_text(
        f'[core]\nhooksPath = {hook.parent}\n[url "file:///nowhere/"]\ninsteadOf = file:///\n'
    )
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_DIR", "/nowhere")
    read = reader_of().read()
    assert good(read) == {"a.yaml": "1"}
    assert read.snapshot.revision == commit
    assert not mark.exists()


def test_says_that_there_is_no_git(repository: Repository, tmp_path: Path) -> None:
    access = GitAccess(search_path=str(tmp_path))
    reader = GitReader(parse_address(repository.url()), access, tmp_path / "scratch")
    assert "install git" in error(reader.read())
