"""`configmap://NAMESPACE/NAME`: one ConfigMap, named as an operator names it (PURE)."""

import re
from dataclasses import dataclass

from reconciler.errors import Rejected
from reconciler.source.names import shown_name

SCHEME = "configmap://"
_LABEL = r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE = re.compile(_LABEL)
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(\.{_LABEL})*")
_FORM = f"{SCHEME}NAMESPACE/NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigMapAddress:
    namespace: str
    name: str

    @property
    def shown(self) -> str:
        return f"{SCHEME}{self.namespace}/{self.name}"


def is_config_map(manifest: str) -> bool:
    """Whether `--manifest` names a ConfigMap, or at least tries to."""
    return manifest.lower().startswith(SCHEME)


def parse_config_map(text: str) -> ConfigMapAddress:
    """Raises Rejected, which says how it should be written."""
    parts = text[len(SCHEME) :].split("/")
    if not text.startswith(SCHEME) or len(parts) != 2 or "" in parts:
        raise _wrong(f"{shown_name(text)} is not {_FORM}")
    namespace, name = parts
    if not _NAMESPACE.fullmatch(namespace):
        raise _wrong(f"{shown_name(namespace)!r} can be no namespace")
    if not _NAME.fullmatch(name):
        raise _wrong(f"{shown_name(name)!r} can be no ConfigMap's name")
    return ConfigMapAddress(namespace=namespace, name=name)


def _wrong(cause: str) -> Rejected:
    return Rejected(f"cannot use this manifest: {cause}")
