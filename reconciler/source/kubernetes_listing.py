"""The files of one ConfigMap, as they would stand in its mount."""

import base64
import binascii
from collections.abc import Mapping

from reconciler.source.listing import MAX_FILE_BYTES, counts, digest
from reconciler.source.names import shown_name
from reconciler.source.snapshot import Snapshot, SourceFile


def snapshot_of(
    location: str, data: Mapping[str, str] | None, binary: Mapping[str, str] | None
) -> Snapshot:
    """The same names, contents and revision as a directory with these files has: a manifest that
    moves from the mount to the API is no change."""
    texts, coded = data or {}, binary or {}
    files = tuple(
        _text(name, texts[name]) if name in texts else _binary(name, coded[name])
        for name in sorted(texts.keys() | coded.keys())
        if counts(name)
    )
    return Snapshot(location=location, revision=digest(files), files=files)


def _text(name: str, text: str) -> SourceFile:
    return _file(name, text.encode(errors="surrogatepass"))


def _binary(name: str, coded: str) -> SourceFile:
    try:
        return _file(name, base64.b64decode(coded, validate=True))
    except (binascii.Error, ValueError):
        shown = shown_name(name)
        return SourceFile(name=shown, error=f"cannot read {shown}: its binaryData is no base64")


def _file(name: str, content: bytes) -> SourceFile:
    shown = shown_name(name)
    if len(content) > MAX_FILE_BYTES:
        return SourceFile(name=shown, error=f"cannot read {shown}: it is larger than 1 MiB")
    return SourceFile(name=shown, content=content)
