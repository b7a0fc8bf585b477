"""What the cache's benchmark pulls from: a folder of files, and two servers in front of it."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from xml.sax.saxutils import escape

from reconciler.hub.s3_settings import S3Settings
from tests.s3_server import KEYS, serve_s3
from tests.waiting import wait_until

BUCKET = "models"
PREFIX = "huggingface/bench_model"
FILES = 8
_BLOCK_BYTES = 16 << 20

_NGINX = """
{user}
worker_processes 2;
daemon off;
pid {root}/nginx.pid;
error_log {root}/error.log;
events {{ worker_connections 256; }}
http {{
  access_log off;
  sendfile on;
  client_body_temp_path {root}/body;
  proxy_temp_path {root}/proxy;
  fastcgi_temp_path {root}/fastcgi;
  uwsgi_temp_path {root}/uwsgi;
  scgi_temp_path {root}/scgi;
  server {{
    listen 127.0.0.1:{port};
    root {root}/buckets;
    limit_rate {limit};
    location ~ ^/models/?$ {{
      default_type application/xml;
      rewrite ^ /models/list.xml break;
    }}
  }}
}}
"""


class CannotStart(Exception):
    """A server that is not on this machine. The message says which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """A server, and the process that it is."""

    name: str
    port: int
    pid: int

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def settings(self) -> S3Settings:
        return S3Settings(endpoint=self.endpoint, bucket=BUCKET, keys=KEYS)


def make_files(root: Path, size_bytes: int) -> dict[str, str]:
    """`FILES` safetensors of random bytes below `root`/buckets; their sha256, by path."""
    folder = root / "buckets" / BUCKET / PREFIX
    folder.mkdir(parents=True)
    digests = {}
    for number in range(FILES):
        block = os.urandom(_BLOCK_BYTES + 17 * number)  # no two parts of a file are the same
        path = folder / f"model-{number + 1:05}-of-{FILES:05}.safetensors"
        found = sha256()
        left = size_bytes // FILES
        with path.open("wb") as file:
            while left:
                piece = block[:left]
                file.write(piece)
                found.update(piece)
                left -= len(piece)
            os.fsync(file.fileno())
        digests[path.name] = found.hexdigest()
    (folder / "config.json").write_bytes(b"{}")
    digests["config.json"] = sha256(b"{}").hexdigest()
    return digests


@contextmanager
def rclone_origin(root: Path) -> Iterator[Origin]:
    """It hashes all of an object for its ETag at each GET, of a part too, unless it has a long
    `--dir-cache-time`: that of our tests would be measured, and not the pull.
    """
    with serve_s3(root / "buckets", dir_cache_time="1h") as server:
        yield Origin(name="rclone", port=server.port, pid=server.pid)


@contextmanager
def nginx_origin(root: Path, *, limit: str = "0") -> Iterator[Origin]:
    """nginx as an object store: it asks for no signature and knows one list.

    `limit`: of each connection, as nginx writes it; "0": none. Raises CannotStart.
    """
    binary = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if binary is None:
        raise CannotStart("nginx is not installed")
    (root / "buckets" / BUCKET / "list.xml").write_text(_listing(root))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
    settings = root / f"nginx-{port}.conf"
    user = "user root;" if os.geteuid() == 0 else ""  # else it could not enter our folder
    settings.write_text(_NGINX.format(root=root, port=port, limit=limit, user=user))
    with subprocess.Popen([binary, "-p", str(root), "-c", str(settings)]) as process:
        try:
            wait_until(lambda: _answers(port), what="nginx listens")
            yield Origin(name="nginx", port=port, pid=process.pid)
        finally:
            process.terminate()


def _listing(root: Path) -> str:
    """As LIST would answer; the ETags are nginx's own."""
    bucket = root / "buckets" / BUCKET
    entries = []
    for path in sorted((bucket / PREFIX).iterdir()):
        status = path.stat()
        etag = f"{int(status.st_mtime):x}-{status.st_size:x}"
        entries.append(
            f"<Contents><Key>{escape(str(path.relative_to(bucket)))}</Key>"
            f"<LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>&quot;{etag}&quot;</ETag>"
            f"<Size>{status.st_size}</Size><StorageClass>STANDARD</StorageClass></Contents>"
        )
    return (
        '<?xml version="1.0" encoding="UTF-8"?>'
        '<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<Name>{BUCKET}</Name><Prefix>{PREFIX}/</Prefix><MaxKeys>1000</MaxKeys>"
        f"<IsTruncated>false</IsTruncated>{''.join(entries)}</ListBucketResult>"
    )


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
