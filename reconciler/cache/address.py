"""What a model's `source:` names (PURE).

gguf/<org>_<name>[@rev]             a prefix of the hub
gguf/<org>_<name>/x.gguf            one file in it
hf://org/name[@rev]                 the prefix that this repository has (plan/repository.py)
file:///abs/path                    a file or folder of the node, used in place
"""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from reconciler.errors import Rejected
from reconciler.plan.desired import Format
from reconciler.plan.repository import SCHEME, Repository, parse_repository, prefix_of


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """`file`: the GGUF that `source:` or `file:` names, relative to the prefix.

    `repository`: where the hub can get it; None: nowhere, it must have it.
    """

    prefix: str
    file: str | None = None
    repository: Repository | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAddress:
    """An absolute path on this node."""

    path: str
    file: str | None = None


def parse_source(
    source: str, file: str | None = None, format: Format = Format.AUTO
) -> HubAddress | LocalAddress:
    """Raises Rejected for what names neither."""
    if source.startswith("file:"):
        return _local(source, file)
    if source.startswith(SCHEME):
        repository = parse_repository(source)
        prefix = prefix_of(repository, file=file, format=format)
        return HubAddress(prefix=prefix, file=file, repository=repository)
    parts = source.split("/")
    if len(parts) < 2 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise Rejected(
            f"cannot use source {source!r}: it must look like gguf/<org>_<name>, "
            "huggingface/<org>_<name>, hf://org/name or file:///path"
        )
    prefix, below = "/".join(parts[:2]), "/".join(parts[2:])
    if not below:
        return HubAddress(prefix=prefix, file=file)
    if not below.lower().endswith(".gguf"):
        raise Rejected(
            f"cannot use source {source!r}: below {prefix} only a .gguf file can be named"
        )
    if file is not None and file != below:
        raise Rejected(f"cannot use source {source!r}: it names one file, and `file:` another")
    return HubAddress(prefix=prefix, file=below)


def _local(source: str, file: str | None) -> LocalAddress:
    url = urlsplit(source)
    path = unquote(url.path)
    if url.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        raise Rejected(f"cannot use source {source!r}: it must look like file:///absolute/path")
    if path.endswith(".gguf") and file not in (None, path.rpartition("/")[2]):
        raise Rejected(f"cannot use source {source!r}: it names one file, and `file:` another")
    return LocalAddress(path=path, file=file)
