"""Keeps secrets out of what the agent shows (PURE)."""

import re
from collections.abc import Iterable, Mapping

from reconciler.plan.desired import SecretRef

MASK = "***"
_SECRET = re.compile(
    r"(^|_)(token|secret|password|passwd|credentials?|api_?keys?|(access|private|secret)_?key)(_|$)",
    re.IGNORECASE,
)
_SHORTEST = 4
"""Of a value that is looked for in other texts: shorter ones stand everywhere by chance."""


def is_secret_name(name: str) -> bool:
    """Whether a variable or flag is named as one that holds a secret: `HF_TOKEN`, `api-key`."""
    return _SECRET.search(name.replace("-", "_")) is not None


def without_secrets(environment: Mapping[str, str]) -> dict[str, str]:
    """What a child of ours gets that needs none: others of its user can read it in /proc."""
    return {name: value for name, value in environment.items() if not is_secret_name(name)}


def masked_values(values: Mapping[str, object]) -> dict[str, object]:
    """For showing. References stay as they are written: they name a secret and are none."""
    return {name: _masked_value(name, value) for name, value in values.items()}


def masked_argv(argv: Iterable[str], secrets: Iterable[str | None]) -> tuple[str, ...]:
    """The arguments without these values, wherever they stand in them."""
    known = [secret for secret in secrets if secret is not None and len(secret) >= _SHORTEST]
    return tuple(masked_text(argument, known) for argument in argv)


def masked_text(text: str, secrets: Iterable[str]) -> str:
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def _masked_value(name: str, value: object) -> object:
    match value:
        case SecretRef(from_env=str(variable)):
            return {"from_env": variable}
        case SecretRef(from_file=path):
            return {"from_file": path}
        case None | bool():
            return value
        case _ if is_secret_name(name):
            return MASK
        case Mapping():
            return masked_values({str(key): inner for key, inner in value.items()})
        case _:
            return value
