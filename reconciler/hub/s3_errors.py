"""What an S3 client's exceptions mean to an operator.

All of it can be mended at the store (a key, a policy, a bucket), so nothing here is for ever.
"""

import re
from xml.etree.ElementTree import ParseError

from minio.error import InvalidResponseError, MinioException, S3Error, ServerError
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    MaxRetryError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from reconciler.errors import Transient

S3_FAILURES = (MinioException, HTTPError, ParseError, ValueError)
"""What minio's client raises: its own errors, urllib3's, and two for an answer that is no S3."""

_CAUSES = {
    "AccessDenied": "access denied; check MINIO_ACCESS_KEY and its policy",
    "AllAccessDisabled": "access denied; check MINIO_ACCESS_KEY and its policy",
    "AuthorizationHeaderMalformed": "the store is in another region; check MINIO_REGION",
    "InvalidAccessKeyId": "the store does not know this access key; check MINIO_ACCESS_KEY",
    "InvalidBucketName": "the store does not take this bucket name; check --hub",
    "InvalidRange": "it changed while it was fetched",
    "InvalidRegion": "the store is in another region; check MINIO_REGION",
    "NoSuchBucket": "there is no such bucket; check --hub",
    "PermanentRedirect": "the bucket is at another endpoint; check MINIO_ENDPOINT, MINIO_REGION",
    "SignatureDoesNotMatch": "the secret key is wrong; check MINIO_SECRET_KEY",
    "NoSuchKey": "it is gone from the store",
    "PreconditionFailed": "it changed while it was fetched",
    "RequestTimeTooSkewed": "the clocks of this node and of the store differ too much",
    "SlowDown": "the store is overloaded and asks to slow down",
}
_OF_PROXIES = (408, 412, 425, 429)
"""Statuses without a code that a gateway in between gives, too."""

_PASSING_STATUSES = (429, 500, 502, 503, 504)
_PASSING_CODES = ("InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown")


def is_passing(exc: Exception) -> bool:
    """Whether the store is overloaded, or fails in a way that the same request may not again."""
    if isinstance(exc, S3Error):
        return exc.code in _PASSING_CODES or exc.response.status in _PASSING_STATUSES
    if isinstance(exc, InvalidResponseError):
        return _status_of(exc) in _PASSING_STATUSES
    return isinstance(exc, ServerError) and exc.status_code in _PASSING_STATUSES


def explained(exc: Exception, doing: str) -> Transient:
    """`doing`: "cannot <verb> <object>". No key, secret or header gets into the message."""
    if isinstance(exc, S3Error):
        status = exc.response.status
        return _by_code(
            doing, exc.code or "", status, exc.response.headers.get("Retry-After"), exc.message
        )
    if isinstance(exc, InvalidResponseError):  # some servers send their XML as text/xml
        text = str(exc)
        code = re.search(r"<Code>(\w+)</Code>", text)
        return _by_code(doing, code[1] if code else "", _status_of(exc), None, None)
    if isinstance(exc, ServerError):
        return _by_code(doing, "", exc.status_code, None, None)
    if isinstance(exc, HTTPError):
        return Transient(f"{doing}: {_network(exc)}")
    if isinstance(exc, ParseError):
        return Transient(f"{doing}: it does not answer as an S3 store; check MINIO_ENDPOINT")
    return Transient(f"{doing}: {exc}; check MINIO_ENDPOINT and --hub")


def _status_of(exc: InvalidResponseError) -> int:
    """It says it in its text only."""
    answer = re.search(r"Response code: (\d+)", str(exc))
    return int(answer[1]) if answer else 0


def _by_code(
    doing: str, code: str, status: int, retry_after: str | None, message: str | None
) -> Transient:
    cause = _CAUSES.get(code) or f"it answers {status} {code} {message or ''}".rstrip()
    if not code and status < 500 and status not in _OF_PROXIES:
        cause += ", not as an S3 store; check MINIO_ENDPOINT"
    return Transient(f"{doing}: {cause}", retry_after_seconds=_seconds(retry_after))


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and retry_after.isdigit() else None


def _network(exc: HTTPError) -> str:
    reason = exc.reason if isinstance(exc, MaxRetryError) and exc.reason is not None else exc
    match reason:
        case SSLError():
            return _tls(str(reason))
        case ProxyError():
            return "the proxy does not let us through; check HTTPS_PROXY, HTTP_PROXY and NO_PROXY"
        case NameResolutionError():
            return "its name cannot be resolved"
        case NewConnectionError():
            return "it does not accept connections"
        case ConnectTimeoutError() | ReadTimeoutError():
            return "it does not answer in time"
        case ProtocolError():
            return "it closes the connection before the end of its answer"
        case _:
            return str(reason)


def _tls(text: str) -> str:
    if "CERTIFICATE_VERIFY_FAILED" in text:
        return "its certificate is not trusted; set SSL_CERT_FILE to your CA"
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
        return "it does not speak TLS there; write http:// in MINIO_ENDPOINT"
    return f"TLS fails: {text}"
