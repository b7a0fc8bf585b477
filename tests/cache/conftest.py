"""The hubs that the cache is tested on: a directory and a real S3 server."""

import itertools
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from reconciler.cache.store import Store
from reconciler.hub.directory import DirectoryStore
from tests.s3_server import S3Server, s3_store, serve_s3

BIG = os.urandom(2 * 1024 * 1024 + 3)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with serve_s3(tmp_path_factory.mktemp("buckets")) as running:
        yield running


BUCKETS = itertools.count()


@pytest.fixture
def bucket(server: S3Server) -> str:
    name = f"bucket-{next(BUCKETS)}"
    (server.folder / name).mkdir()
    return name


@pytest.fixture(params=["directory", "s3"])
def hub(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Path, Store]]:
    """The folder that holds the prefixes, and a store over it."""
    if request.param == "directory":
        folder = tmp_path / "hub"
        folder.mkdir()
        yield folder, DirectoryStore(folder)
        return
    server: S3Server = request.getfixturevalue("server")
    bucket: str = request.getfixturevalue("bucket")
    with s3_store(server.settings(bucket)) as store:
        yield server.folder / bucket, store


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    folder = tmp_path / "models"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4m", "none", str(folder)]
    if os.getuid() != 0 or subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs the right to mount")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)
