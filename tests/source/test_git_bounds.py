"""What a fetch may bring: little of a large repository, and never more than its bound."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import parse_address
from reconciler.source.git_reader import GitReader
from tests.source.git_https import GitHost, certificate, serving
from tests.source.git_repository import Repository, text

MIB = 1 << 20
ReaderOf = Callable[..., GitReader]


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(root=tmp_path / "remote")


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    return tmp_path / "scratch"


@pytest.fixture
def reader_of(repository: Repository, scratch: Path) -> ReaderOf:
    def make(max_bytes: int = 2 * MIB) -> GitReader:
        access = GitAccess(search_path=os.environ["PATH"], timeout_seconds=30, max_bytes=max_bytes)
        return GitReader(parse_address(repository.url("ref=main&path=m")), access, scratch)

    return make


@pytest.fixture
def host(repository: Repository, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GitHost]:
    made = certificate(tmp_path_factory.mktemp("tls"), "ours")
    with serving(GitHost(projects=repository.root, certificate=made)) as found:
        yield found


def let_filter(repository: Repository, yes: bool) -> None:
    repository.run("config", "uploadpack.allowFilter", str(yes).lower(), folder=repository.bare)


def push_large(repository: Repository, name: str, size: int) -> str:
    path = repository.work / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(os.urandom(size))
    return repository.push()


def refusal(reader: GitReader) -> str:
    """The server was reached: what it holds is what is wrong."""
    read = reader.read()
    assert read.reached
    assert read.snapshot.error is not None
    return read.snapshot.error


def kept(scratch: Path) -> int:
    return sum(path.stat().st_size for path in scratch.rglob("*") if path.is_file())


def test_more_than_the_bound_is_refused_and_nothing_of_it_stays(
    repository: Repository, reader_of: ReaderOf, scratch: Path
) -> None:
    """A server without filters sends every file of the commit."""
    let_filter(repository, False)
    repository.push({"m/a.yaml": "1"})
    reader = reader_of()
    assert text(reader) == "1"

    commit = push_large(repository, "blob", 8 * MIB)

    read = reader.read()
    assert read.snapshot.error is not None
    assert read.snapshot.error.endswith(
        ": it takes more than 2 MiB, the most that a fetch may bring (--git-max-mib); the server "
        "sends every file of the commit, since it has no filters (uploadpack.allowFilter)"
    )
    assert read.snapshot.revision == commit
    assert kept(scratch) < 10_000
    (repository.work / "blob").unlink()
    repository.push({"m/a.yaml": "2"})
    assert text(reader) == "2"


def test_it_is_not_fetched_again_before_the_ref_moves(
    repository: Repository, reader_of: ReaderOf
) -> None:
    let_filter(repository, False)
    repository.write({"m/a.yaml": "1"})
    push_large(repository, "blob", 8 * MIB)
    reader = reader_of()
    said = refusal(reader)
    let_filter(repository, True)  # a fetch would go well now
    assert refusal(reader) == said
    repository.push({"m/a.yaml": "2"})
    assert text(reader) == "2"


def test_a_server_with_filters_sends_no_other_files(
    repository: Repository, reader_of: ReaderOf
) -> None:
    repository.write({"m/a.yaml": "1"})
    push_large(repository, "blob", 8 * MIB)
    assert text(reader_of()) == "1"


def test_a_manifest_beyond_the_bound_is_refused(
    repository: Repository, reader_of: ReaderOf, scratch: Path
) -> None:
    """Of its size the server tells nothing before it comes."""
    repository.push({"m/a.yaml": "1"})
    reader = reader_of()
    assert text(reader) == "1"
    commit = push_large(repository, "m/a.yaml", 8 * MIB)
    assert "it takes more than 2 MiB" in refusal(reader)
    assert reader.read().snapshot.revision == commit
    assert kept(scratch) < 10_000


READING = """
import resource, sys
from pathlib import Path
from reconciler.source.git_access import GitAccess
from reconciler.source.git_address import parse_address
from reconciler.source.git_reader import GitReader
url, search_path, scratch = sys.argv[1:]
access = GitAccess(search_path=search_path, max_bytes=2 << 20)
read = GitReader(parse_address(url), access, Path(scratch)).read()
for file in read.snapshot.files:
    print(file.name, file.error)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)
"""


@pytest.mark.slow
def test_what_grows_as_it_is_unpacked_takes_no_memory(
    repository: Repository, scratch: Path
) -> None:
    """100 MiB of zeros are some 100 KiB on the wire."""
    repository.write({"m/a.yaml": "1", "m/zeros.yaml": ""})
    os.truncate(repository.work / "m/zeros.yaml", 100 * MIB)
    repository.push()
    url = repository.url("ref=main&path=m")
    command = [sys.executable, "-c", READING, url, os.environ["PATH"], str(scratch)]

    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)

    small, large, most = done.stdout.splitlines()
    assert (small, large) == (
        "a.yaml None",
        "zeros.yaml cannot read m/zeros.yaml: it is larger than 1 MiB",
    )
    assert int(most) < 60 * MIB


def test_many_fetches_together_stay_within_twice_the_bound(
    repository: Repository, reader_of: ReaderOf, scratch: Path
) -> None:
    let_filter(repository, False)
    reader = reader_of(2 * MIB)
    most = 0
    for number in range(5):
        repository.write({"m/a.yaml": str(number)})
        push_large(repository, "blob", MIB + MIB // 2)
        assert text(reader) == str(number)
        most = max(most, kept(scratch))
    assert 2 * MIB < most < 4 * MIB


@pytest.mark.net
@pytest.mark.slow
@pytest.mark.parametrize("filters", [True, False])
def test_a_long_history_with_large_files_costs_next_to_nothing(
    repository: Repository, host: GitHost, tmp_path: Path, filters: bool
) -> None:
    """30 MB in 300 commits: on the disk and on the wire comes one commit, or its manifest alone."""
    let_filter(repository, filters)
    repository.push({"m/a.yaml": "1"})
    repository.grow(300, size=100_000)
    access = GitAccess(ca_file=host.certificate, search_path=os.environ["PATH"], timeout_seconds=30)
    address = parse_address(f"git+https://{host.place}/repository.git?ref=main&path=m")
    reader = GitReader(address, access, tmp_path / "scratch")

    assert text(reader) == "1"

    assert kept(repository.bare) > 30_000_000
    assert host.sent_bytes < (5_000 if filters else 110_000)
    assert kept(tmp_path / "scratch") < (20_000 if filters else 120_000)
    host.sent_bytes = 0
    repository.push({"m/a.yaml": "2"})
    assert text(reader) == "2"
    assert host.sent_bytes < (5_000 if filters else 110_000)
    host.sent_bytes = 0
    assert text(reader) == "2"
    assert host.sent_bytes < 1_000
