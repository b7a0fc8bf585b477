"""What may stand in `--manifest` as the URL of a repository, and what is said of the rest."""

import pytest

from reconciler.errors import Rejected
from reconciler.source.git_address import Transport, is_address, parse_address


def test_reads_every_part() -> None:
    text = "git+https://bot@git.example.com:8443/org/models.git?ref=release/1&path=/manifests/prod/"
    address = parse_address(text)
    assert address.transport is Transport.HTTPS
    assert address.url == "https://git.example.com:8443/org/models.git"
    assert (address.user, address.ref, address.path) == ("bot", "release/1", "manifests/prod")
    assert address.shown == text
    assert address.commit is None


def test_takes_the_servers_own_branch_and_the_root_where_nothing_is_said() -> None:
    address = parse_address("git+file:///srv/models.git")
    assert (address.url, address.ref, address.path) == ("file:///srv/models.git", "HEAD", "")


def test_ssh_is_the_user_git_unless_another_is_named() -> None:
    assert parse_address("git+ssh://host/r.git").url == "ssh://git@host/r.git"
    assert parse_address("git+ssh://ann@host:22/r.git").url == "ssh://ann@host:22/r.git"


def test_decodes_what_is_escaped_and_leaves_a_plus() -> None:
    address = parse_address("git+file:///r.git?ref=a+b&path=with%20blank/f%C3%BCr.yaml")
    assert (address.ref, address.path) == ("a+b", "with blank/für.yaml")


@pytest.mark.parametrize("digits", [40, 64])
def test_a_full_id_pins_a_commit(digits: int) -> None:
    assert parse_address(f"git+file:///r?ref={'a' * digits}").commit == "a" * digits


@pytest.mark.parametrize("path", ["/manifests", "manifests/prod", "a:b", "git", "user@host"])
def test_a_path_is_no_url(path: str) -> None:
    assert not is_address(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("https://host/r.git", r"write git\+https://host/r\.git"),
        ("ssh://git@host/r.git", r"write git\+ssh://git@host/r\.git"),
        ("git@github.com:org/r.git", r"write git\+ssh://git@github\.com/org/r\.git"),
        ("git+http://host/r.git", "not encrypted"),
        ("git://host/r.git", "neither a path nor"),
        ("git+ext://sh%20-c%20id", "neither a path nor"),
        ("git+https://host", "names no repository"),
        ("git+https:///r.git", "names no host"),
        ("git+ssh://-oProxyCommand=id/r.git", "names no host"),
        ("git+ssh://-oProxyCommand=id@host/r.git", "user name"),
        ("git+file://host/r.git", "names a host"),
        ("git+https://host:x/r.git", "no URL"),
        ("git+https://host/r.git#main", "has a '#'"),
        ("git+https://host/r.git?refs=main", "did you mean ref"),
        ("git+https://host/r.git?ref=a&ref=b", "twice"),
        ("git+https://host/r.git?ref=", "no name of a branch"),
        ("git+https://host/r.git?ref=-fupload-pack", "no name of a branch"),
        ("git+https://host/r.git?ref=a:refs/heads/b", "no name of a branch"),
        ("git+https://host/r.git?ref=a%0ab", "no name of a branch"),
        ("git+https://host/r.git?ref=a..b", "no name of a branch"),
        ("git+https://host/r.git?path=../etc", "no plain path"),
        ("git+https://host/r.git?path=a/./b", "no plain path"),
    ],
)
def test_says_how_it_should_be_written(text: str, said: str) -> None:
    assert is_address(text)
    with pytest.raises(Rejected, match=said):
        parse_address(text)


def test_never_repeats_a_password() -> None:
    with pytest.raises(Rejected, match="--git-token-file") as caught:
        parse_address("git+https://bot:s3cr3t@host/r.git")
    assert "s3cr3t" not in str(caught.value)
