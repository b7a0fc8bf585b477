"""Pages of metrics in Prometheus' text format, of several engines as one page (PURE).

Each sample gets its model and node. HELP and TYPE stand once for each metric, with all its samples.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

_NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
_LABELS = r'(?:[^"}]++|"(?:[^"\\]++|\\.)*+")*+'
_SAMPLE = re.compile(rf"({_NAME})\s*(?:\{{({_LABELS})\}})?\s+(\S+)(?:\s+(-?\d+))?")
_COMMENT = re.compile(rf"#\s+(HELP|TYPE)\s+({_NAME})(?:\s+(.*))?")
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*("(?:[^"\\]|\\.)*")\s*(?:,|$)')
_SUFFIXES = {
    "histogram": ("_bucket", "_count", "_sum"),
    "summary": ("", "_count", "_sum"),
}
_OURS = ("model", "node")
_UNTYPED = "untyped"


@dataclass(slots=True)
class _Family:
    type: str = ""
    help: str = ""
    samples: list[str] = field(default_factory=list)


class Merged:
    """Pages are added, then read as one."""

    def __init__(self) -> None:
        self._families: dict[str, _Family] = {}

    def add(self, page: str, *, model: str, node: str) -> None:
        """Raises ValueError where the page is none; nothing of it is taken then."""
        labels = f'model="{_escaped(model)}",node="{_escaped(node)}"'
        page_families = _parsed(page.split("\n"), labels)
        for name, fresh in page_families.items():
            family = self._families.setdefault(name, _Family(type=fresh.type))
            family.help = family.help or fresh.help
            family.samples += fresh.samples
            if family.type != fresh.type:  # engines of two minds: it can be neither
                family.type = _UNTYPED

    def text(self) -> str:
        return "".join(
            f"# HELP {name} {family.help}\n# TYPE {name} {family.type or _UNTYPED}\n"
            + "".join(family.samples)
            for name, family in self._families.items()
            if family.samples
        )


def _parsed(lines: Iterable[str], labels: str) -> dict[str, _Family]:
    families: dict[str, _Family] = {}
    named = ""
    for line in lines:
        line = line.strip()
        if not line:
            continue
        if line.startswith("#"):
            if comment := _COMMENT.fullmatch(line):
                named = comment[2]
                family = families.setdefault(named, _Family())
                if comment[1] == "TYPE":
                    family.type = comment[3] or _UNTYPED
                else:
                    family.help = comment[3] or ""
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            raise ValueError(f"{line[:80]!r} is no sample")
        float(sample[3])
        name = sample[1] if not _belongs(sample[1], named, families) else named
        families.setdefault(name, _Family()).samples.append(_labelled(sample, labels))
    return families


def _belongs(sample: str, named: str, families: dict[str, _Family]) -> bool:
    if named not in families:
        return False
    suffixes = _SUFFIXES.get(families[named].type, ("",))
    return any(sample == named + suffix for suffix in suffixes)


def _labelled(sample: re.Match[str], labels: str) -> str:
    own = sample[2] or ""
    if any(name in own for name in _OURS):
        own = _exported(own)
    timestamp = f" {sample[4]}" if sample[4] else ""
    joined = f"{labels},{own}" if own.strip() else labels
    return f"{sample[1]}{{{joined}}} {sample[3]}{timestamp}\n"


def _exported(own: str) -> str:
    """An engine's own label of that name goes by another, as with Prometheus itself."""
    pairs = [
        f"exported_{name}={value}" if name in _OURS else f"{name}={value}"
        for name, value in _LABEL.findall(own)
    ]
    return ",".join(pairs)


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
