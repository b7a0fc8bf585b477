"""What a prefix holds, as its pusher saw it: every file with its digest (PURE).

<prefix>/.xgen/catalog.json             the catalog in force, written last
         .xgen/catalogs/<digest>.json   every pushed one, so that old digests stay pullable
         .xgen/objects/<sha256>         a file whose plain path was taken
         <path>                         a file of a first push; it keeps the name of that time
         .xgen/pushes/<digest>          a push is under way, or was cut off; written first

Digest: sha256 over the sorted lines `path NUL size NUL sha256 LF` (design §6). CRC-32 is the fast
checksum: parts that are fetched in any order can be checked one by one, and it runs at disk speed.
"""

import hashlib
import re
from collections.abc import Iterable

import msgspec

from reconciler.errors import Rejected
from reconciler.plan.windows import Windows

CATALOG = ".xgen/catalog.json"
CATALOGS = ".xgen/catalogs/"
OBJECTS = ".xgen/objects/"
PUSHES = ".xgen/pushes/"
VERSION = 1
LIMIT_BYTES = 32 * 1024 * 1024
"""Of a catalog's JSON: some 100,000 files. What is larger is not read."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
_CRC32 = re.compile(r"[0-9a-f]{8}")


class Upstream(msgspec.Struct, frozen=True, kw_only=True):
    """Where the files came from before: a repository, at a revision."""

    repository: str
    revision: str | None = None


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What planning needs to know of a model before its files are here; None: not known.

    `format`: gguf or safetensors. `weights_bytes`: of all tensors. `kv_bytes_per_token`: of the
    cache, for one token of one sequence, at 16 bits, where all layers keep all tokens;
    `kv_windows`: where some do not. `kv_heads`: on how many it is spread. `context_length`: in
    tokens.
    """

    format: str | None = None
    weights_bytes: int | None = None
    kv_bytes_per_token: int | None = None
    kv_windows: Windows | None = None
    kv_heads: int | None = None
    context_length: int | None = None


class CatalogFile(msgspec.Struct, frozen=True, kw_only=True):
    """`path`: in the model's folder. `key`: where its bytes are, relative to the prefix: an object
    of the content's own, or a plain path, of this file or of one that had the content before it.

    `sha256`, `crc32`: of the content, in hex.
    """

    path: str
    key: str
    size_bytes: int
    sha256: str
    crc32: str


class Catalog(msgspec.Struct, frozen=True, kw_only=True):
    """`pushed_at`: RFC 3339, UTC, by the pusher's clock; for people. Files are sorted by path."""

    catalog: int = VERSION
    digest: str
    pushed_at: str
    facts: Facts
    licence: str | None = None
    upstream: Upstream | None = None
    files: tuple[CatalogFile, ...]

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


class _Header(msgspec.Struct, frozen=True):
    """What every version of a catalog has."""

    catalog: int


def content_digest(files: Iterable[tuple[str, int, str]]) -> str:
    """Of (path, size, sha256) each."""
    lines = sorted(f"{path}\0{size}\0{sha256}\n" for path, size, sha256 in files)
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def digest_of(files: Iterable[CatalogFile]) -> str:
    return content_digest((file.path, file.size_bytes, file.sha256) for file in files)


def object_key(sha256: str) -> str:
    return OBJECTS + sha256


def catalog_key(digest: str) -> str:
    return f"{CATALOGS}{digest}.json"


def push_key(digest: str) -> str:
    return PUSHES + digest


def dump_catalog(catalog: Catalog) -> bytes:
    """JSON for people to read, too."""
    return msgspec.json.format(msgspec.json.encode(catalog), indent=1) + b"\n"


def parse_catalog(content: bytes, where: str) -> Catalog:
    """Fields that are not known are left out. Raises Rejected for what cannot be trusted.

    `where`: the catalog's place, for messages.
    """
    cannot = f"cannot read catalog {where}"
    if len(content) > LIMIT_BYTES:
        raise Rejected(f"{cannot}: it is larger than {LIMIT_BYTES >> 20} MiB")
    try:
        version = msgspec.json.decode(content, type=_Header).catalog
        if version > VERSION:
            raise Rejected(f"{cannot}: a newer xgen-model wrote it (version {version}); update")
        catalog = msgspec.json.decode(content, type=Catalog)
    except (msgspec.DecodeError, RecursionError) as exc:
        raise Rejected(f"{cannot}: it is damaged: {exc}") from exc
    problem = _problem(catalog)
    if problem is not None:
        raise Rejected(f"{cannot}: it is damaged: {problem}")
    return catalog


def _problem(catalog: Catalog) -> str | None:
    if catalog.catalog < 1:
        return f"there is no version {catalog.catalog}"
    if not catalog.files:
        return "it names no file"
    if not _has_sizes(catalog.facts):
        return "a cache has no such size"
    for file in catalog.files:
        if (problem := _problem_of(file)) is not None:
            return f"{file.path!r}: {problem}"
    paths = {file.path for file in catalog.files}
    if len(paths) != len(catalog.files):
        return "it names a path twice"
    contents = {(file.key, file.size_bytes, file.sha256) for file in catalog.files}
    if len({key for key, *_ in contents}) != len(contents):
        return "two contents have one key"
    if digest_of(catalog.files) != catalog.digest:
        return "its digest is not that of its files"
    return None


def _has_sizes(facts: Facts) -> bool:
    """Whether its figures of the cache can be reckoned with."""
    windows = facts.kv_windows
    figures = [facts.kv_bytes_per_token, facts.kv_heads]
    if windows is not None:
        layers = (windows.full_layers, windows.windowed_layers)
        figures += [windows.layer_bytes, windows.window_tokens, sum(layers)]
        if min(layers) < 0:
            return False
    return all(figure is None or figure > 0 for figure in figures)


def _problem_of(file: CatalogFile) -> str | None:
    """Paths and keys are names in a store and on a node: none may lead out of the prefix."""
    if not _is_plain(file.path):
        return "it is no path of a model's file"
    if file.size_bytes < 0:
        return "its size is negative"
    if not _SHA256.fullmatch(file.sha256) or not _CRC32.fullmatch(file.crc32):
        return "its digests are none"
    if file.key != object_key(file.sha256) and not _is_plain(file.key):
        return f"its key {file.key!r} is none of its own"
    return None


def _is_plain(path: str) -> bool:
    """No hidden name, and none that leads elsewhere."""
    return not any(part == "" or part[0] == "." or "\0" in part for part in path.split("/"))
