"""`git+https://host/repo.git?ref=main&path=manifests/prod`: what an operator names a source (PURE).

No secret is part of it, so that it may be shown anywhere.
"""

import difflib
import re
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import SplitResult, unquote, urlsplit

from reconciler.errors import Rejected
from reconciler.source.names import shown_name

_FORM = "git+https://HOST/REPOSITORY.git?ref=BRANCH&path=FOLDER"
_KEYS = ("ref", "path")
_COMMIT = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_SCP = re.compile(r"[\w.-]+@[\w.-]+:(?!//).+")
_NO_REF = re.compile(r"^[-/]|[\x00-\x20\x7f~^:?*\[\\]|\.\.|@\{|//|/$|\.$|\.lock$|(^|/)\.")
"""What git itself refuses in a name, and a `-` in front, which would be an option."""
_NO_USER = re.compile(r"^-|[^A-Za-z0-9._@+-]")


class Transport(StrEnum):
    HTTPS = "https"
    SSH = "ssh"
    FILE = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class GitAddress:
    """`url`: as git gets it, without the user of https, who is part of the credentials.

    `ref`: a branch, a tag, a full name (refs/…), a full commit id, or HEAD. `path`: a file or a
    folder in the repository, `/` between; empty: its root. `shown`: as it was given.
    """

    transport: Transport
    url: str
    user: str | None
    ref: str
    path: str
    shown: str

    @property
    def commit(self) -> str | None:
        """The commit that `ref` pins, if it does."""
        return self.ref if _COMMIT.fullmatch(self.ref) else None


def is_address(manifest: str) -> bool:
    """Whether `--manifest` names something to be fetched, or at least tries to; else a path."""
    return "://" in manifest or _SCP.fullmatch(manifest) is not None


def parse_address(text: str) -> GitAddress:
    """Raises Rejected, which says how it should be written, and repeats no password."""
    if _SCP.fullmatch(text):
        user_and_host, _, path = text.partition(":")
        raise _wrong(f"write git+ssh://{user_and_host}/{path.lstrip('/')}")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as exc:
        raise _wrong(f"it is no URL ({exc})") from exc
    if parts.password is not None:
        raise _wrong(
            "it holds a password, which would show in logs and lists of processes; leave it out, "
            "write it to a file and name that with --git-token-file"
        )
    shown = shown_name(text)
    transport = _transport(parts, shown)
    query = _query(parts.query, shown)
    if parts.fragment:
        raise _wrong(f"{shown} has a '#'; what follows the repository is ?ref=…&path=…")
    return GitAddress(
        transport=transport,
        url=_url(transport, parts, port, shown),
        user=_user(parts, shown),
        ref=_ref(query.get("ref", "HEAD")),
        path=_path(query.get("path", "")),
        shown=shown,
    )


def _transport(parts: SplitResult, shown: str) -> Transport:
    git, plus, name = parts.scheme.partition("+")
    if git == "git" and plus and name in list(Transport):
        return Transport(name)
    if parts.scheme in ("git+http", "http"):
        raise _wrong(f"{shown} is not encrypted; use git+https")
    if parts.scheme in list(Transport):
        raise _wrong(f"write git+{shown}")
    raise _wrong(
        f"{shown} is neither a path nor git+https, git+ssh, git+file ({_FORM}) or configmap://"
    )


def _url(transport: Transport, parts: SplitResult, port: int | None, shown: str) -> str:
    host = parts.hostname or ""
    path = parts.path
    if not path.strip("/") or any(not each.isprintable() for each in path):
        raise _wrong(f"{shown} names no repository ({_FORM})")
    if transport is Transport.FILE:
        if parts.netloc:
            raise _wrong(f"{shown} names a host; a local repository is git+file:///PATH")
        return f"file://{path}"
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.-]*|[0-9a-f:.]+", host):
        raise _wrong(f"{shown} names no host ({_FORM})")
    host = f"[{host}]" if ":" in host else host
    place = host if port is None else f"{host}:{port}"
    if transport is Transport.SSH:
        return f"ssh://{parts.username or 'git'}@{place}{path}"
    return f"https://{place}{path}"


def _user(parts: SplitResult, shown: str) -> str | None:
    if parts.username is None:
        return None
    user = unquote(parts.username)
    if not user or _NO_USER.search(user):
        raise _wrong(f"{shown} has a user name that cannot be")
    return user


def _query(text: str, shown: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in text.split("&") if text else ():
        key, _, value = pair.partition("=")
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1)
            hint = f"did you mean {close[0]}?" if close else f"there are {' and '.join(_KEYS)}"
            raise _wrong(f"{shown} has {key!r}; {hint}")
        if key in found:
            raise _wrong(f"{shown} has {key!r} twice")
        found[key] = unquote(value, errors="surrogateescape")
    return found


def _ref(ref: str) -> str:
    if not ref or _NO_REF.search(ref):
        raise _wrong(f"ref={shown_name(ref)} is no name of a branch, a tag or a commit")
    return ref


def _path(path: str) -> str:
    parts = path.strip("/").split("/") if path.strip("/") else []
    if any(part in ("", ".", "..") for part in parts) or "\0" in path:
        raise _wrong(f"path={shown_name(path)} is no plain path within the repository")
    return "/".join(parts)


def _wrong(cause: str) -> Rejected:
    return Rejected(f"cannot use this manifest URL: {cause}")
