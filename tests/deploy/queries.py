"""PromQL as text: the metrics and the labels that a query names."""

import re

_QUOTED = re.compile(r'"[^"]*"')
_METRIC = re.compile(r"\b(?:xgen_\w+|process_\w+|up)\b(?!\s*\()")
_LABELS_OF = re.compile(r"(?:xgen_\w+|process_\w+|\bup)\{([^}]*)\}")


def metrics_in(query: str) -> set[str]:
    """The names of series, `_bucket` and the like included."""
    return set(_METRIC.findall(_QUOTED.sub('""', query)))


def selectors_in(query: str) -> list[str]:
    """What stands in the braces behind each metric."""
    return _LABELS_OF.findall(query)
