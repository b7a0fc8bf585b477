"""What went wrong between us and the Kubernetes API, as a cause that an operator can act on."""

import re
import ssl

import aiohttp
import msgspec

from reconciler.errors import Transient
from reconciler.source.names import shown_name

UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT, GONE = 401, 403, 404, 409, 410
_MAX_CHARACTERS = 400
_CERTIFICATE = re.compile(r"certificate verify failed: (?P<why>.*?)(?: \(_ssl\.c:\d+\))?\W*$")
NO_API = "what answers there is no Kubernetes API"


class ApiFailed(Transient):
    """`status`: of the answer; None: there was none. The text is a cause, the same each time."""

    def __init__(
        self, cause: str, *, status: int | None = None, wait_seconds: float | None = None
    ) -> None:
        super().__init__(cause, retry_after_seconds=wait_seconds)
        self.status = status


class _Status(msgspec.Struct):
    message: str = ""
    code: int = 0


def refused(status: int, body: bytes, wait: str) -> ApiFailed:
    """An answer other than 2xx. `wait`: its Retry-After; empty: it has none."""
    try:
        said = msgspec.json.decode(body, type=_Status).message
    except msgspec.DecodeError:
        said = ""
    words = shown_name(" ".join(said.split()))[:_MAX_CHARACTERS]
    return ApiFailed(
        _words(status, words),
        status=status,
        wait_seconds=float(wait) if wait.isdecimal() else None,
    )


def _words(status: int, said: str) -> str:
    if status == UNAUTHORIZED:
        return "the API server does not know who we are (401): the token is wrong or has expired"
    if status == FORBIDDEN:
        return f"{said or 'the API server forbids it'} (403); docs/sources.md has the Role"
    if 300 <= status < 400:
        return f"{NO_API}: it leads elsewhere ({status})"
    return f"the API server answers {status}{f': {said}' if said else ''}"


def unanswered(exc: aiohttp.ClientError | OSError) -> ApiFailed:
    """Where there was no whole answer."""
    if isinstance(exc, TimeoutError):
        return ApiFailed("the API server does not answer in time")
    if isinstance(exc, aiohttp.ClientConnectorCertificateError):
        return ApiFailed(_certificate(exc.certificate_error))
    if isinstance(exc, aiohttp.ClientConnectorSSLError):
        return ApiFailed(f"what answers there does not speak TLS as we do: {_system(exc.os_error)}")
    if isinstance(exc, aiohttp.ClientConnectorDNSError):
        return ApiFailed(f"cannot find the API server {exc.host}: {_system(exc.os_error)}")
    if isinstance(exc, aiohttp.ClientConnectorError):
        place = f"{exc.host}:{exc.port}"
        return ApiFailed(f"cannot connect to the API server {place}: {_system(exc.os_error)}")
    if isinstance(exc, OSError):
        return ApiFailed(f"the connection to the API server broke: {_system(exc)}")
    return ApiFailed("the connection to the API server broke in the middle of an answer")


def _certificate(exc: Exception) -> str:
    why = exc.verify_message if isinstance(exc, ssl.SSLCertVerificationError) else str(exc)
    found = _CERTIFICATE.search(why)
    return (
        f"the API server's certificate is not trusted: {found['why'] if found else why}; is this "
        "the cluster's authority (certificate-authority, or the pod's ca.crt)?"
    )


def _system(exc: OSError) -> str:
    """Without what differs from try to try."""
    text = exc.strerror or str(exc) or type(exc).__name__
    text = re.sub(r"^\[.*?\] |^Connect call failed.*", "", text) or "connection refused"
    return shown_name(text[:1].lower() + text[1:])
