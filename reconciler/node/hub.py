"""Which store the settings name; the S3 client, slow to import, comes with an S3 hub only."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from reconciler.errors import Rejected
from reconciler.hub.directory import DirectoryStore
from reconciler.hub.directory_writer import DirectoryWriter
from reconciler.hub.endpoint import bucket_and_base
from reconciler.hub.key_place import KEY_VARIABLES
from reconciler.hub.proxies import Proxies
from reconciler.hub.rate_limit import RateLimit
from reconciler.hub.s3_settings import S3Settings
from reconciler.settings import HubSettings

if TYPE_CHECKING:
    from reconciler.hub.s3_apart import S3StoreApart
    from reconciler.hub.s3_writer import S3Writer

_SCHEME = "s3://"
_ENDPOINT = ("MINIO_ENDPOINT", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REGION = ("MINIO_REGION", "AWS_REGION", "AWS_DEFAULT_REGION")
_CA_FILE = ("SSL_CERT_FILE", "AWS_CA_BUNDLE")
STORE_VARIABLES = (*_ENDPOINT, *_REGION, *_CA_FILE, *KEY_VARIABLES)
"""What `HubSettings.variables` may hold; of several for one thing, the first that is set counts."""


def make_store(hub: HubSettings) -> "S3StoreApart | DirectoryStore | None":
    """The hub of `--hub`, or None where there is none. Raises Rejected; connects to nothing."""
    if not hub.location:
        return None
    place = _place(hub, hub.location)
    if isinstance(place, Path):
        return DirectoryStore(place, rate=RateLimit(hub.bytes_per_second))
    from reconciler.hub.s3_apart import S3StoreApart

    return S3StoreApart(place, bytes_per_second=hub.bytes_per_second)


def make_writer(hub: HubSettings, location: str) -> "S3Writer | DirectoryWriter":
    """The hub at `location`, to write to. Raises Rejected; connects to nothing."""
    place = _place(hub, location)
    if isinstance(place, Path):
        return DirectoryWriter(place)
    from reconciler.hub.s3_writer import S3Writer

    return S3Writer(place)


def _place(hub: HubSettings, location: str) -> S3Settings | Path:
    if not location.startswith(_SCHEME):
        if "://" in location:
            raise Rejected(
                f"cannot use hub {location!r}: it must be s3://BUCKET, or a directory's path"
            )
        return Path(location).absolute()
    bucket, base = bucket_and_base(location)
    endpoint, region, ca_file = (
        _first_set(hub.variables, names) for names in (_ENDPOINT, _REGION, _CA_FILE)
    )
    return S3Settings(
        endpoint=hub.variables.get(endpoint, ""),
        endpoint_from=endpoint,
        bucket=bucket,
        base=base,
        keys={name: hub.variables[name] for name in KEY_VARIABLES if name in hub.variables},
        region=hub.variables.get(region, "us-east-1"),
        region_from=region,
        ca_file=hub.variables.get(ca_file),
        ca_file_from=ca_file,
        proxies=Proxies(http=hub.http_proxy, https=hub.https_proxy, no_proxy=hub.no_proxy),
    )


def _first_set(variables: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((name for name in names if name in variables), names[0])
