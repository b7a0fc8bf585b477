"""The way to an S3 store: settings, credentials, connections. Readers and writers share it."""

from dataclasses import dataclass, field

import certifi
import urllib3
from minio import Minio
from urllib3.util import Retry, Timeout, make_headers, parse_url

from reconciler.errors import Rejected
from reconciler.hub.endpoint import Endpoint, parse_endpoint
from reconciler.hub.proxies import Proxies

MAX_CONNECTIONS = 16
_RETRIES = Retry(
    total=3,
    connect=1,  # a host that swallows packets costs two timeouts, not four
    backoff_factor=0.2,
    status_forcelist=[500, 502, 503, 504],
    raise_on_status=False,  # the last answer says more than "too many 503"
    respect_retry_after_header=False,  # it may ask for hours; our own planner waits instead
)
_NO_RETRIES = Retry(total=0, raise_on_status=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Settings:
    """How to reach a bucket. Without keys, requests are anonymous.

    `endpoint`: as written by the operator. `base`: a folder in the bucket that holds the prefixes.
    `ca_file`: certificates to trust instead of the public ones.
    """

    endpoint: str
    bucket: str
    base: str = ""
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)
    region: str = "us-east-1"
    ca_file: str | None = None
    proxies: Proxies = field(default_factory=Proxies)
    connect_timeout_seconds: float = 10.0
    read_timeout_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Connection:
    """`location`: the bucket and its endpoint, for messages. `client`: for threads, not forks."""

    location: str
    client: Minio
    pool: urllib3.PoolManager


def connect(settings: S3Settings, *, tries: bool = True) -> S3Connection:
    """Connects to nothing yet. Raises Rejected for settings that cannot be.

    `tries`: whether a request that fails is made again.
    """
    endpoint = parse_endpoint(settings.endpoint)
    base = f"/{settings.base}" if settings.base else ""
    location = f"s3://{settings.bucket}{base} at {endpoint.url}"
    if bool(settings.access_key) != bool(settings.secret_key):
        raise Rejected(
            f"cannot use {location}: MINIO_ACCESS_KEY and MINIO_SECRET_KEY belong together"
        )
    pool = _pool(settings, endpoint, _RETRIES if tries else _NO_RETRIES)
    try:
        client = Minio(
            endpoint=endpoint.netloc,
            access_key=settings.access_key,
            secret_key=settings.secret_key,
            session_token=settings.session_token,
            secure=endpoint.secure,
            region=settings.region,  # else the client asks for it, which needs a permission
            http_client=pool,
        )
    except ValueError as exc:
        raise Rejected(f"cannot use {location}: {exc}") from exc
    client.disable_virtual_style_endpoint()  # type: ignore[no-untyped-call]  # theirs
    return S3Connection(location=location, client=client, pool=pool)


def _pool(settings: S3Settings, endpoint: Endpoint, retries: Retry) -> urllib3.PoolManager:
    timeout = Timeout(connect=settings.connect_timeout_seconds, read=settings.read_timeout_seconds)
    ca_file = settings.ca_file or certifi.where()
    proxy = settings.proxies.url_for(endpoint)
    if proxy is None:
        return urllib3.PoolManager(
            timeout=timeout, retries=retries, maxsize=MAX_CONNECTIONS, ca_certs=ca_file
        )
    auth = parse_url(proxy).auth
    return urllib3.ProxyManager(
        proxy,
        proxy_headers=make_headers(proxy_basic_auth=auth) if auth else None,
        timeout=timeout,
        retries=retries,
        maxsize=MAX_CONNECTIONS,
        ca_certs=ca_file,
    )
