"""The way to an S3 store: keys, connections. Readers and writers share it."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import unquote

import certifi
import urllib3
from minio import Minio
from urllib3.exceptions import LocationParseError, ProxySchemeUnknown
from urllib3.util import Retry, Timeout, make_headers, parse_url

from reconciler.errors import Rejected, Transient, XgenError
from reconciler.hub.credentials import find_keys
from reconciler.hub.endpoint import Endpoint, parse_endpoint
from reconciler.hub.s3_errors import S3_FAILURES, Named, explained
from reconciler.hub.s3_settings import S3Settings

MAX_CONNECTIONS = 16
_RETRIES = Retry(
    total=3,
    connect=1,  # a host that swallows packets costs two timeouts, not four
    other=0,  # TLS: a certificate stays as it is
    backoff_factor=0.2,
    status_forcelist=[500, 502, 503, 504],
    raise_on_status=False,  # the last answer says more than "too many 503"
    respect_retry_after_header=False,  # it may ask for hours; our own planner waits instead
)
_NO_RETRIES = Retry(total=0, raise_on_status=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class S3Connection:
    """`location`: the bucket and its endpoint, for messages. `client`: for threads, not forks."""

    location: str
    client: Minio
    pool: urllib3.PoolManager
    named: Named

    def explained(self, exc: Exception, doing: str) -> Transient:
        """What one of S3_FAILURES means. `doing`: "cannot <verb> <object>"."""
        return explained(exc, doing, self.named)

    @contextmanager
    def explaining(self, doing: str) -> Iterator[None]:
        """The same for what fails in the block; ours passes as it is."""
        try:
            yield
        except XgenError:
            raise
        except S3_FAILURES as exc:
            raise self.explained(exc, doing) from exc


def connect(settings: S3Settings, *, tries: bool = True) -> S3Connection:
    """Connects to nothing yet. Raises Rejected for settings that cannot be.

    `tries`: whether a request that fails is made again.
    """
    endpoint = parse_endpoint(settings.endpoint, settings.endpoint_from)
    base = f"/{settings.base}" if settings.base else ""
    location = f"s3://{settings.bucket}{base} at {endpoint.url}"
    keys = find_keys(settings.keys)
    pool = _pool(settings, endpoint, _RETRIES if tries else _NO_RETRIES)
    try:
        client = Minio(
            endpoint=endpoint.netloc,
            credentials=keys,
            secure=endpoint.secure,
            region=settings.region,  # else the client asks for it, which needs a permission
            http_client=pool,
        )
    except ValueError as exc:
        raise Rejected(f"cannot use {location}: {exc}") from exc
    client.disable_virtual_style_endpoint()  # type: ignore[no-untyped-call]  # theirs
    named = Named(
        endpoint=settings.endpoint_from,
        region=settings.region_from,
        ca_file=f"{settings.ca_file_from}={settings.ca_file}" if settings.ca_file else None,
        keys=keys.names if keys else None,
    )
    return S3Connection(location=location, client=client, pool=pool, named=named)


def _pool(settings: S3Settings, endpoint: Endpoint, retries: Retry) -> urllib3.PoolManager:
    timeout = Timeout(connect=settings.connect_timeout_seconds, read=settings.read_timeout_seconds)
    ca_file = settings.ca_file or certifi.where()
    proxy = settings.proxies.url_for(endpoint)
    if proxy is None:
        return urllib3.PoolManager(
            timeout=timeout, retries=retries, maxsize=MAX_CONNECTIONS, ca_certs=ca_file
        )
    try:
        auth = parse_url(proxy).auth
        return urllib3.ProxyManager(
            proxy,
            proxy_headers=make_headers(proxy_basic_auth=unquote(auth)) if auth else None,
            timeout=timeout,
            retries=retries,
            maxsize=MAX_CONNECTIONS,
            ca_certs=ca_file,
        )
    except (LocationParseError, ProxySchemeUnknown):
        variable = "HTTPS_PROXY" if endpoint.secure else "HTTP_PROXY"
        raise Rejected(  # without the cause: it shows the URL, which may hold a password
            f"cannot use {variable}: it must look like http://host:port"
        ) from None
