"""A repository over ssh: our key, the host's key, and nobody else's."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.errors import Rejected
from reconciler.source.git_access import GitAccess, check_access
from reconciler.source.git_address import parse_address
from reconciler.source.git_reader import GitReader
from tests.source.git_repository import Repository, error, text
from tests.source.git_sshd import SshHost, free_port, make_key, running, sshd

pytestmark = pytest.mark.net


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(root=tmp_path / "remote")
    made.push({"m/a.yaml": "1"})
    return made


@pytest.fixture
def host(tmp_path: Path) -> Iterator[SshHost]:
    with sshd(tmp_path / "sshd") as made:
        yield made


@pytest.fixture
def access(host: SshHost) -> GitAccess:
    return GitAccess(
        ssh_key=host.key,
        known_hosts=host.known_hosts,
        search_path=os.environ["PATH"],
        timeout_seconds=30,
    )


def reader(host: SshHost, access: GitAccess, repository: Repository) -> GitReader:
    url = f"git+ssh://{host.place}{repository.bare}?ref=main&path=m"
    return GitReader(parse_address(url), access, repository.root / "scratch")


def test_reads_with_the_key_that_is_named(
    host: SshHost, access: GitAccess, repository: Repository
) -> None:
    found = reader(host, access, repository)
    assert text(found) == "1"
    repository.push({"m/a.yaml": "2"})
    assert text(found) == "2"


def test_refuses_a_host_whose_key_has_changed(
    host: SshHost, access: GitAccess, repository: Repository
) -> None:
    found = reader(host, access, repository)
    assert text(found) == "1"
    make_key(host.folder / "host")
    moved = elsewhere(host)
    with running(moved):
        repository.push({"m/a.yaml": "2"})
        moved_reader = reader(moved, access, repository)
        said = error(moved_reader)
        assert "another key than the one in --git-known-hosts" in said
        moved.tell_key()
        assert text(moved_reader) == "2"


def elsewhere(host: SshHost) -> SshHost:
    """The host at its place as it is known, behind another key. Its file names the old key."""
    moved = replace(host, port=free_port())
    old = host.known_hosts.read_text()
    host.known_hosts.write_text(old.replace(f":{host.port} ", f":{moved.port} "))
    return moved


def test_says_which_key_is_not_known(
    host: SshHost, access: GitAccess, repository: Repository
) -> None:
    host.known_hosts.write_text("")
    assert "--git-known-hosts has no key of this host" in error(reader(host, access, repository))
    host.tell_key()
    make_key(host.key)
    assert "does not know the key in --git-ssh-key" in error(reader(host, access, repository))


def test_says_that_others_may_read_the_key(
    host: SshHost, access: GitAccess, repository: Repository
) -> None:
    host.key.chmod(0o644)
    assert "give it mode 0400" in error(reader(host, access, repository))


def test_takes_no_key_of_the_user_and_no_known_host_of_the_machine(
    host: SshHost, access: GitAccess
) -> None:
    address = parse_address(f"git+ssh://{host.place}/r.git")
    with pytest.raises(Rejected, match="--git-ssh-key"):
        check_access(address, replace(access, ssh_key=None))
    with pytest.raises(Rejected, match="--git-known-hosts"):
        check_access(address, replace(access, known_hosts=None))
