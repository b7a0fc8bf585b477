"""Where one key of a store stands: in a variable, or in the file that a variable names."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from reconciler.errors import Transient
from reconciler.hub.profile import PROFILE_VARIABLES

MINIO = ("MINIO_ACCESS_KEY", "MINIO_SECRET_KEY", "MINIO_SESSION_TOKEN")
AWS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
FILE = "_FILE"
KEY_VARIABLES = (*MINIO, *(name + FILE for name in MINIO), *AWS, *PROFILE_VARIABLES)
_MOST_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPlace:
    """Where one key stands: `value` is it, or `file` holds it."""

    said: str
    value: str = field(default="", repr=False)
    file: str | None = None

    def read(self, *, in_header: bool) -> str:
        """Raises Transient. `in_header`: requests carry it as it is."""
        value = (self.value if self.file is None else _content(self.file, self.said)).strip()
        if not value:
            raise Transient(f"cannot use {self.said}: it is empty")
        if not value.isprintable() or (in_header and (not value.isascii() or " " in value)):
            raise Transient(f"cannot use {self.said}: it is no key, but has blanks or odd letters")
        return value


def place_of(variables: Mapping[str, str], name: str) -> KeyPlace | None:
    """None: the variable is not set, nor the one for its file."""
    if value := variables.get(name):
        return KeyPlace(said=name, value=value)
    if file := variables.get(name + FILE):
        return KeyPlace(said=_file_said(name + FILE, file), file=file)
    return None


def key_in(variable: str, file: str) -> str:
    """What stands in the file that a variable names. Raises Transient, with the variable's name."""
    return KeyPlace(said=_file_said(variable, file), file=file).read(in_header=True)


def _file_said(variable: str, file: str) -> str:
    """With its path, unless somebody may have written the key there instead."""
    folder = os.path.dirname(file)
    is_path = os.path.exists(file) or (folder not in ("", "/") and os.path.isdir(folder))
    return f"{variable}={file}" if is_path else f"the file that {variable} names"


def _content(file: str, said: str) -> str:
    try:
        with open(file, encoding="utf-8") as opened:
            return opened.read(_MOST_BYTES)
    except OSError as exc:
        raise Transient(f"cannot read {said}: {exc.strerror}") from exc
    except UnicodeDecodeError:
        raise Transient(f"cannot read {said}: it is no text") from None  # the error holds it all
