"""Which store the settings name."""

from pathlib import Path

from reconciler.errors import Rejected
from reconciler.hub.directory import DirectoryStore
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.endpoint import bucket_and_base
from reconciler.hub.proxies import Proxies
from reconciler.hub.rate_limit import RateLimit
from reconciler.hub.s3_apart import S3StoreApart
from reconciler.hub.s3_connection import S3Settings
from reconciler.hub.s3_writer import S3Writer
from reconciler.settings import HubSettings

_SCHEME = "s3://"


def make_store(hub: HubSettings) -> S3StoreApart | DirectoryStore | None:
    """The hub of `--hub`, or None where there is none. Raises Rejected; connects to nothing."""
    if not hub.location:
        return None
    place = _place(hub, hub.location)
    if isinstance(place, Path):
        return DirectoryStore(place, rate=RateLimit(hub.bytes_per_second))
    return S3StoreApart(place, bytes_per_second=hub.bytes_per_second)


def make_writer(hub: HubSettings, location: str) -> S3Writer | DirectoryWriter:
    """The hub at `location`, to write to. Raises Rejected; connects to nothing."""
    place = _place(hub, location)
    return DirectoryWriter(place) if isinstance(place, Path) else S3Writer(place)


def _place(hub: HubSettings, location: str) -> S3Settings | Path:
    if not location.startswith(_SCHEME):
        if "://" in location:
            raise Rejected(
                f"cannot use hub {location!r}: it must be s3://BUCKET, or a directory's path"
            )
        return Path(location).absolute()
    bucket, base = bucket_and_base(location)
    return S3Settings(
        endpoint=hub.endpoint or "",
        bucket=bucket,
        base=base,
        access_key=hub.access_key,
        secret_key=hub.secret_key,
        region=hub.region,
        ca_file=hub.ca_file,
        proxies=Proxies(http=hub.http_proxy, https=hub.https_proxy, no_proxy=hub.no_proxy),
    )
