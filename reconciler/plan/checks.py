"""What a model is asked once it is ready and before it serves, and what it has to answer.

Paths of files are relative to the model's own folder, until it is started.
Structs, since they stand in the record of a start, too.
"""

from pathlib import PurePosixPath

import msgspec


class TextCheck(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`text` is completed as it stands, or, with `chat`, put as a user's message. The answer must
    hold one of `contains`, as it is written."""

    text: str
    chat: bool
    contains: tuple[str, ...]
    max_tokens: int


class EmbeddingCheck(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """The angle between the answer and the vector that is expected has at least this `cosine`.

    The vector is `embedding` or stands in `file`, as a JSON list; exactly one of the two is set.
    """

    text: str
    embedding: tuple[float, ...] = ()
    file: str | None = None
    cosine: float


class RerankCheck(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """`first` must score higher than each of `others`."""

    query: str
    first: str
    others: tuple[str, ...]


class TranscriptionCheck(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What is heard in `file` must hold one of `contains`, as it is written."""

    file: str
    contains: tuple[str, ...]


Check = TextCheck | EmbeddingCheck | RerankCheck | TranscriptionCheck


def in_folder(check: Check, root: str) -> Check:
    """The check with its file's absolute path."""
    if isinstance(check, EmbeddingCheck | TranscriptionCheck) and check.file is not None:
        return msgspec.structs.replace(check, file=str(PurePosixPath(root) / check.file))
    return check


def file_of(check: Check) -> str | None:
    """The file that it needs beside the model's own ones."""
    return check.file if isinstance(check, EmbeddingCheck | TranscriptionCheck) else None
