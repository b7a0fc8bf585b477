"""What an S3 client's exceptions mean to an operator.

All of it can be mended at the store (a key, a policy, a bucket), so nothing here is for ever.
"""

import re
import ssl
from dataclasses import dataclass
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
from reconciler.hub.credentials import KeyNames

S3_FAILURES = (MinioException, HTTPError, ParseError, ValueError)
"""What minio's client raises: its own errors, urllib3's, and two for an answer that is no S3."""

_CAUSES = {
    "AccessDenied": "access denied; check {access_key} and its policy",
    "AllAccessDisabled": "access denied; check {access_key} and its policy",
    "AuthorizationHeaderMalformed": "the store is in another region; check {region}",
    "ExpiredToken": "the session token has expired; renew {session_token}",
    "InvalidAccessKeyId": "the store does not know this access key; check {access_key}",
    "InvalidBucketName": "the store does not take this bucket name; check --hub",
    "InvalidRange": "it changed while it was fetched",
    "InvalidRegion": "the store is in another region; check {region}",
    "InvalidToken": "the store does not know the session token; check {session_token}",
    "InvalidTokenId": "the store does not know the session token; check {session_token}",
    "NoSuchBucket": "there is no such bucket; check --hub",
    "PermanentRedirect": "the bucket is at another endpoint; check {endpoint} and {region}",
    "SignatureDoesNotMatch": "the secret key is wrong; check {secret_key}",
    "NoSuchKey": "it is gone from the store",
    "PreconditionFailed": "it changed while it was fetched",
    "RequestTimeTooSkewed": "the clocks of this node and of the store differ too much",
    "SlowDown": "the store is overloaded and asks to slow down",
}
_WITHOUT_KEYS = ("AccessDenied", "AllAccessDisabled", "UnsupportedAlgorithm")
"""What stores answer to a request that is not signed; the last is rclone's."""
_ANONYMOUS = (
    "access denied: no credentials are set; set MINIO_ACCESS_KEY and MINIO_SECRET_KEY, "
    "or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
)
_OF_PROXIES = (408, 412, 425, 429)
"""Statuses without a code that a gateway in between gives, too."""

_PASSING_STATUSES = (429, 500, 502, 503, 504)
_PASSING_CODES = ("InternalError", "RequestTimeout", "ServiceUnavailable", "SlowDown")


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """What an operator has set, as messages call it. `keys`: None: requests are anonymous.

    `ca_file`: with its variable; None: none is set.
    """

    endpoint: str
    region: str
    ca_file: str | None
    keys: KeyNames | None

    def in_causes(self) -> dict[str, str]:
        keys = self.keys
        return {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key": keys.access_key if keys else "",
            "secret_key": keys.secret_key if keys else "",
            "session_token": keys.session_token if keys else "",
        }


def is_passing(exc: Exception) -> bool:
    """Whether the store is overloaded, or fails in a way that the same request may not again."""
    is_known = isinstance(exc, S3Error) and exc.code in _PASSING_CODES
    return is_known or answered(exc) in _PASSING_STATUSES


def answered(exc: Exception) -> int:
    """The status of the store's answer; 0: there was none."""
    if isinstance(exc, S3Error):
        return exc.response.status
    if isinstance(exc, ServerError):
        return exc.status_code
    if isinstance(exc, InvalidResponseError):  # it says it in its text only
        said = re.search(r"Response code: (\d+)", str(exc))
        return int(said[1]) if said else 0
    return 0


def explained(exc: Exception, doing: str, named: Named) -> Transient:
    """`doing`: "cannot <verb> <object>". No key, secret or header gets into the message."""
    if isinstance(exc, S3Error):
        cause = _by_code(exc.code or "", answered(exc), exc.message or "", named)
        retry_after = exc.response.headers.get("Retry-After")
        return Transient(f"{doing}: {cause}", retry_after_seconds=_seconds(retry_after))
    return Transient(f"{doing}: {_cause(exc, named)}")


def _cause(exc: Exception, named: Named) -> str:
    if isinstance(exc, InvalidResponseError):  # some servers send their XML as text/xml
        text = str(exc)
        if "HTTPS server" in text or "HTTPS port" in text:  # Go's words, and nginx's
            return f"it speaks TLS there; write https:// in {named.endpoint}"
        code = re.search(r"<Code>(\w+)</Code>", text)
        return _by_code(code[1] if code else "", answered(exc), "", named)
    if isinstance(exc, ServerError):
        return _by_code("", answered(exc), "", named)
    if isinstance(exc, HTTPError):
        return _network(exc, named)
    if isinstance(exc, ParseError):
        return f"it does not answer as an S3 store; check {named.endpoint}"
    return f"{exc}; check {named.endpoint} and --hub"


def _by_code(code: str, status: int, message: str, named: Named) -> str:
    if code in _WITHOUT_KEYS and named.keys is None:
        return _ANONYMOUS
    if code in _CAUSES:
        return _CAUSES[code].format(**named.in_causes())
    cause = f"it answers {status} {code} {message}".rstrip()
    if not code and status < 500 and status not in _OF_PROXIES:
        cause += f", not as an S3 store; check {named.endpoint}"
    return cause


def _seconds(retry_after: str | None) -> float | None:
    return float(retry_after) if retry_after is not None and retry_after.isdigit() else None


def _network(exc: HTTPError, named: Named) -> str:
    reason = exc.reason if isinstance(exc, MaxRetryError) and exc.reason is not None else exc
    match reason:
        case SSLError():
            return _tls(reason, named)
        case ProxyError(original_error=NewConnectionError() | ConnectTimeoutError()):
            return "the proxy cannot be reached; check HTTPS_PROXY and HTTP_PROXY"
        case ProxyError():
            return "the proxy does not let us through; check HTTPS_PROXY, HTTP_PROXY and NO_PROXY"
        case NameResolutionError():
            return f"its name cannot be resolved; check {named.endpoint}, and this node's DNS"
        case NewConnectionError():
            return f"it does not accept connections; does it run there? check {named.endpoint}"
        case ConnectTimeoutError() | ReadTimeoutError():
            return "it does not answer in time"
        case ProtocolError():
            return "it closes the connection before the end of its answer"
        case _:
            return str(reason)


def _tls(reason: SSLError, named: Named) -> str:
    text, cause = str(reason), reason.args[0] if reason.args else None
    if isinstance(cause, ssl.SSLCertVerificationError):
        return _certificate(cause.verify_message, named)
    if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError):
        return f"the CA cannot be read from {named.ca_file}: {cause.strerror}"
    if "[X509" in text or "[PEM" in text:
        return f"no CA can be read from {named.ca_file}: it holds no certificate"
    if "WRONG_VERSION_NUMBER" in text or "record layer failure" in text:
        return f"it does not speak TLS there; write http:// in {named.endpoint}"
    return f"TLS fails: {text}"


def _certificate(problem: str, named: Named) -> str:
    """`problem`: in OpenSSL's words."""
    if "expired" in problem:
        return "its certificate has expired"
    if "mismatch" in problem:
        return f"its certificate is for another name than the one in {named.endpoint}"
    if named.ca_file is None:
        return "its certificate is not trusted; set SSL_CERT_FILE to your CA"
    return f"its certificate is not trusted; it is not of the CA in {named.ca_file}"
