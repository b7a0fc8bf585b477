"""Where an S3 store is: endpoints as people write them (kserve#849, #213).

http://host:9000   https://host   host:9000 (http)   host, host:443 (https)
"""

from dataclasses import dataclass
from urllib.parse import urlsplit

from reconciler.errors import Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """`netloc`: host, with the port where one was written."""

    netloc: str
    host: str
    port: int
    secure: bool

    @property
    def url(self) -> str:
        return f"{'https' if self.secure else 'http'}://{self.netloc}"


def parse_endpoint(text: str, variable: str = "MINIO_ENDPOINT") -> Endpoint:
    """Raises Rejected for what names no host, or more than a host. `variable`: where it stands."""
    written = text.strip()
    if not written:
        raise Rejected(f"cannot reach the hub: no endpoint is set ({variable})")
    if "@" in written:  # never shown: it holds a password, maybe one that no URL can hold
        raise Rejected(
            f"cannot use the hub endpoint in {variable}: it must not hold a user or password; "
            "set MINIO_ACCESS_KEY and MINIO_SECRET_KEY"
        )
    bare = "://" not in written
    doing = f"cannot use hub endpoint {written!r} ({variable})"
    try:
        url = urlsplit(f"//{written}" if bare else written)
        port = url.port
    except ValueError as exc:
        colons = written.rpartition("://")[2].count(":")
        port_is = "; a port is a number up to 65535, as in http://host:9000"
        more = "; an IPv6 address stands in brackets" if colons > 1 else port_is
        raise Rejected(f"{doing}: {exc}{more}") from exc
    if not bare and url.scheme not in ("http", "https"):
        raise Rejected(f"{doing}: the scheme must be http or https")
    if not url.hostname or any(character.isspace() for character in written):
        raise Rejected(f"{doing}: it names no host")
    if url.path not in ("", "/") or url.query or url.fragment:
        raise Rejected(
            f"{doing}: it must end after the host and port; the bucket stands in --hub s3://bucket"
        )
    secure = url.scheme == "https" or (bare and port in (None, 443))
    return Endpoint(
        netloc=url.netloc.removesuffix(":"),
        host=url.hostname,
        port=port if port is not None else 443 if secure else 80,
        secure=secure,
    )


def bucket_and_base(url: str) -> tuple[str, str]:
    """`s3://bucket/some/base` → ("bucket", "some/base"). Raises Rejected."""
    scheme, _, rest = url.partition("://")
    bucket, _, base = rest.partition("/")
    base = base.strip("/")
    if scheme != "s3" or not bucket or any(part in ("", "..") for part in base.split("/") if base):
        raise Rejected(f"cannot use hub {url!r}: it must look like s3://bucket or s3://bucket/base")
    return bucket, base
