from collections.abc import Iterator

import pytest

from tests.s3_server import S3Server, serve_s3


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """One real S3 server for a module; each test uses prefixes of its own."""
    folder = tmp_path_factory.mktemp("buckets")
    (folder / "models").mkdir()
    with serve_s3(folder) as running:
        yield running
