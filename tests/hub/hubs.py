"""The hubs that everything which writes is tested on: a directory, rclone's S3 server, moto's.

Import `servers` and `hub` into a test module to have these fixtures.
"""

import itertools
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from reconciler.hub.directory import DirectoryStore
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.s3 import S3Store
from reconciler.hub.s3_connection import connect
from reconciler.hub.s3_settings import S3Settings
from reconciler.hub.s3_writer import S3Writer
from reconciler.hub.writable import WritableHub
from tests.hub.moto_server import serve_moto
from tests.s3_server import KEYS, s3_store, serve_s3

KINDS = ("directory", "rclone", "moto")
_NUMBER = itertools.count(1)


@dataclass(frozen=True, kw_only=True)
class Hub:
    """One empty hub. `folder`: where its files can be seen, unless they are in memory.

    `location` and `environment`: what a command is given. `settings`: of an S3 store.
    """

    kind: str
    writer: WritableHub
    location: str
    settings: S3Settings | None = None
    environment: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def content(self, prefix: str) -> dict[str, bytes]:
        """Everything under the prefix."""
        keys = [each.key for each in self.writer.stored(prefix)]
        return {key: b"".join(self.writer.read(prefix, key)) for key in keys}

    def plain(self, prefix: str) -> dict[str, bytes]:
        """What other tools see of it: no hidden names."""
        found = self.content(prefix)
        return {key: value for key, value in found.items() if not key.startswith(".")}


@dataclass
class Servers:
    """Started when first asked for; one of a kind for a module."""

    folder: Path
    stack: ExitStack
    running: dict[str, S3Settings] = field(default_factory=dict)

    def settings(self, kind: str) -> S3Settings:
        if kind not in self.running:
            self.running[kind] = self._start(kind)
        return self.running[kind]

    def _start(self, kind: str) -> S3Settings:
        if kind == "rclone":
            (self.folder / "models").mkdir()
            server = serve_s3(self.folder, dir_cache_time="1h")
            return self.stack.enter_context(server).settings()
        settings = S3Settings(
            endpoint=self.stack.enter_context(serve_moto()),
            bucket="models",
            keys=KEYS,
        )
        connection = connect(settings)
        connection.client.make_bucket(bucket_name="models")
        connection.pool.clear()
        return settings


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    with ExitStack() as stack:
        yield Servers(folder=tmp_path_factory.mktemp("buckets"), stack=stack)


@pytest.fixture(params=KINDS)
def hub(request: pytest.FixtureRequest, servers: Servers, tmp_path: Path) -> Iterator[Hub]:
    with new_hub(request.param, servers, tmp_path) as made:
        yield made


@contextmanager
def reader(hub: Hub) -> Iterator[DirectoryStore | S3Store]:
    """The same hub, as a node reads it."""
    if hub.settings is None:
        yield DirectoryStore(Path(hub.location))
        return
    with s3_store(hub.settings) as store:
        yield store


@contextmanager
def another_writer(hub: Hub) -> Iterator[WritableHub]:
    """The same hub, as another process writes to it."""
    writer = S3Writer(hub.settings) if hub.settings else DirectoryWriter(Path(hub.location))
    try:
        yield writer
    finally:
        writer.close()


@contextmanager
def new_hub(kind: str, servers: Servers, tmp_path: Path) -> Iterator[Hub]:
    if kind == "directory":
        folder = tmp_path / "hub"
        folder.mkdir()
        yield Hub(kind=kind, writer=DirectoryWriter(folder), location=str(folder), folder=folder)
        return
    base = f"base-{next(_NUMBER)}"
    settings = replace(servers.settings(kind), base=base)
    writer = S3Writer(settings)
    environment = {
        "MINIO_ENDPOINT": settings.endpoint,
        **KEYS,
    }
    seen = servers.folder / "models" / base if kind == "rclone" else None
    try:
        yield Hub(
            kind=kind,
            writer=writer,
            location=f"s3://models/{base}",
            settings=settings,
            environment=environment,
            folder=seen,
        )
    finally:
        writer.close()
