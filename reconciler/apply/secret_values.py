"""The values that a model's `env` refers to: read for what is to start, kept nowhere."""

import stat
from collections.abc import Mapping
from pathlib import Path

from reconciler.errors import Rejected, Transient
from reconciler.plan.desired import DesiredModel, SecretRef

_MOST_BYTES = 128 * 1024
"""Linux gives a process no longer variable (MAX_ARG_STRLEN), so there is no use in reading on."""


def secret_values(model: DesiredModel, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The values of `from_env` and `from_file`, by variable. Raises Rejected or Transient.

    What is missing for good is said before what may yet come.
    """
    refs = {name: ref for name, ref in model.spec.env.items() if isinstance(ref, SecretRef)}
    values: dict[str, str] = {}
    for name, ref in refs.items():
        if ref.from_env is not None:
            found = environment.get(ref.from_env)
            if found is None:
                raise Rejected(
                    f"cannot start {model.name}: env {name} is from_env {ref.from_env}, "
                    "which the agent's environment does not have"
                )
            values[name] = found
    for name, ref in refs.items():
        if ref.from_file is not None:
            try:
                values[name] = _content(Path(ref.from_file))
            except (OSError, ValueError) as exc:
                raise Transient(
                    f"cannot start {model.name}: env {name} is from_file {ref.from_file}: "
                    f"{_cause(exc)}; goes on by itself once that can be read"
                ) from None
    return values


def _content(path: Path) -> str:
    """Raises OSError or ValueError. A pipe is refused: to open it may wait forever."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise ValueError("it is no regular file")
    with path.open("rb") as file:
        content = file.read(_MOST_BYTES)
    if len(content) == _MOST_BYTES:
        raise ValueError(f"it has {_MOST_BYTES // 1024} KiB or more")
    if b"\0" in content:
        raise ValueError("it holds a NUL byte")
    return content.decode().rstrip("\n")


def _cause(exc: OSError | ValueError) -> str:
    """Without a byte of the content, which a UnicodeDecodeError would quote."""
    if isinstance(exc, OSError):
        return exc.strerror or type(exc).__name__
    return "it is no UTF-8 text" if isinstance(exc, UnicodeDecodeError) else str(exc)
