"""A repository of Hugging Face, and the prefix of the hub that its files get (PURE).

org/name[@revision]     huggingface/org_name[@revision]
its GGUF files          gguf/org_name[@revision]

GGUF is meant where a file is named, where the format says so, and where the repository's name ends
in GGUF. A `/` in a revision (refs/pr/1) becomes `~`, which no revision can hold.
"""

import re
from dataclasses import dataclass

from reconciler.errors import Rejected
from reconciler.plan.desired import Format

SCHEME = "hf://"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*")
_REVISION = re.compile(r"[A-Za-z0-9._/-]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """`name`: org/name. `revision`: a branch, a tag or a commit; None: the main branch."""

    name: str
    revision: str | None = None

    def __str__(self) -> str:
        return self.name if self.revision is None else f"{self.name}@{self.revision}"


def parse_repository(text: str) -> Repository:
    """`org/name[@revision]`, with or without hf://. Raises Rejected for anything else."""
    name, at, revision = text.removeprefix(SCHEME).partition("@")
    if not _NAME.fullmatch(name) or (at and not _REVISION.fullmatch(revision)):
        raise Rejected(
            f"cannot use repository {text!r}: it must look like org/name or org/name@revision"
        )
    return Repository(name=name, revision=revision or None)


def gguf_is_meant(repository: Repository, *, file: str | None, format: Format) -> bool:
    if format is Format.AUTO:
        return file is not None or repository.name.lower().endswith("gguf")
    return format is Format.GGUF


def prefix_of(repository: Repository, *, file: str | None, format: Format) -> str:
    """Where the hub keeps it."""
    top = "gguf" if gguf_is_meant(repository, file=file, format=format) else "huggingface"
    revision = f"@{repository.revision.replace('/', '~')}" if repository.revision else ""
    return f"{top}/{repository.name.replace('/', '_')}{revision}"
