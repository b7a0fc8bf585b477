"""A repository behind TLS and a token, as hosts serve it."""

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import parse_address
from reconciler.source.git_reader import GitReader
from tests.hub.connect_proxy import connect_proxy
from tests.source import git_repository
from tests.source.git_https import GitHost, certificate, serving
from tests.source.git_repository import Repository, text

pytestmark = pytest.mark.net

TOKEN = "t0k3n-of-the-test"


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    made = Repository(root=tmp_path / "remote")
    made.push({"m/a.yaml": "1"})
    return made


@pytest.fixture
def certified(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return certificate(tmp_path_factory.mktemp("tls"), "ours")


@pytest.fixture
def host(repository: Repository, certified: Path) -> Iterator[GitHost]:
    made = GitHost(
        projects=repository.root, certificate=certified, passwords={"x-access-token": TOKEN}
    )
    with serving(made):
        yield made


@pytest.fixture
def access(tmp_path: Path, certified: Path) -> GitAccess:
    token = tmp_path / "with blank & 'quote'" / "token"
    token.parent.mkdir()
    token.write_text(f"{TOKEN}\r\n")
    return GitAccess(
        token_file=token,
        ca_file=certified,
        search_path=os.environ["PATH"],
        timeout_seconds=30,
    )


def reader(host: GitHost, access: GitAccess, folder: Path, *, user: str = "") -> GitReader:
    url = f"git+https://{user}{host.place}/repository.git?ref=main&path=m"
    return GitReader(parse_address(url), access, folder / "scratch")


def error(found: GitReader) -> str:
    said = git_repository.error(found)
    assert TOKEN not in said
    return said


def test_shows_the_token_to_nobody_but_the_host(
    host: GitHost, access: GitAccess, tmp_path: Path
) -> None:
    told: list[str] = []

    def look() -> None:
        for name in ("cmdline", "environ"):
            for file in Path("/proc").glob(f"[0-9]*/{name}"):
                try:
                    content = file.read_bytes()
                except OSError:
                    continue
                if TOKEN.encode() in content:
                    told.append(f"{file}: {content!r}")

    host.meanwhile = look
    assert text(reader(host, access, tmp_path)) == "1"
    assert set(host.asked) == {("x-access-token", TOKEN)}
    assert told == []
    written = [path for path in (tmp_path / "scratch").rglob("*") if path.is_file()]
    assert written
    assert not [path for path in written if TOKEN.encode() in path.read_bytes()]


def test_takes_the_user_of_the_url(host: GitHost, access: GitAccess, tmp_path: Path) -> None:
    host.passwords = {"ann@example.com": TOKEN}
    assert text(reader(host, access, tmp_path, user="ann%40example.com@")) == "1"


def test_takes_a_new_token_at_the_next_look(
    host: GitHost, access: GitAccess, repository: Repository, tmp_path: Path
) -> None:
    found = reader(host, access, tmp_path)
    assert text(found) == "1"
    host.passwords = {"x-access-token": "another"}
    repository.push({"m/a.yaml": "2"})
    assert "refuses the token in --git-token-file" in error(found)
    assert access.token_file is not None
    access.token_file.write_text("another")
    assert text(found) == "2"


def test_says_what_to_give_where_something_is_missing(
    host: GitHost, access: GitAccess, tmp_path: Path
) -> None:
    def said(access: GitAccess) -> str:
        return error(reader(host, access, tmp_path))

    assert "--git-token-file" in said(replace(access, token_file=None))
    assert "--git-ca-file" in said(replace(access, ca_file=None))
    gone = replace(access, token_file=tmp_path / "gone")
    assert f"cannot read {tmp_path / 'gone'}: No such file" in said(gone)


def test_tells_a_host_that_it_is_sent_to_no_token(
    host: GitHost, access: GitAccess, repository: Repository, certified: Path, tmp_path: Path
) -> None:
    other = GitHost(
        projects=repository.root, certificate=certified, passwords={"x-access-token": TOKEN}
    )
    with serving(other):
        host.redirect = f"https://{other.place}"
        assert "--git-token-file" in error(reader(host, access, tmp_path))
        assert other.asked == []
        host.redirect = f"http://{other.place}"
        assert "http" in error(reader(host, access, tmp_path))


def test_says_that_the_host_is_away_in_the_same_words_each_time(
    host: GitHost, access: GitAccess, repository: Repository, tmp_path: Path
) -> None:
    """An outage is one event."""
    with serving(replace(host, port=0)) as away:
        found = reader(away, access, tmp_path)
        assert text(found) == "1"
    said = {error(found) for _ in range(3)}
    assert len(said) == 1, said
    repository.push({"m/a.yaml": "2"})
    with serving(away):
        assert text(found) == "2"


def test_goes_through_a_proxy_and_shows_its_password_to_nobody(
    host: GitHost, access: GitAccess, tmp_path: Path
) -> None:
    with connect_proxy("ann:pr0xy") as proxy:
        through = {"HTTPS_PROXY": f"http://ann:pr0xy@{proxy.address}", "NO_PROXY": "elsewhere"}
        assert text(reader(host, replace(access, proxies=through), tmp_path)) == "1"
        assert set(proxy.asked) == {host.place}
        wrong = {"HTTPS_PROXY": f"http://ann:wr0ng@{proxy.address}"}
        said = error(reader(host, replace(access, proxies=wrong), tmp_path))
        assert "407" in said
        assert "wr0ng" not in said
