"""What a model's `source:` names (PURE).

gguf/<org>_<name>[@rev]             a prefix of the hub
gguf/<org>_<name>/x.gguf            one file in it
file:///abs/path                    a file or folder of the node, used in place
"""

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from reconciler.errors import Rejected


@dataclass(frozen=True, slots=True, kw_only=True)
class HubAddress:
    """`file`: the GGUF that `source:` or `file:` names, relative to the prefix."""

    prefix: str
    file: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalAddress:
    """An absolute path on this node."""

    path: str
    file: str | None = None


def parse_source(source: str, file: str | None = None) -> HubAddress | LocalAddress:
    """Raises Rejected for what names neither."""
    if source.startswith("file:"):
        return _local(source, file)
    if "://" in source:
        raise Rejected(
            f"cannot use source {source!r}: not supported yet; push it to the hub, name its prefix"
        )
    parts = source.split("/")
    if len(parts) < 2 or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise Rejected(
            f"cannot use source {source!r}: it must look like gguf/<org>_<name>, "
            "huggingface/<org>_<name> or file:///path"
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
