"""Where a document suspends something, for whom it is told that a command cannot lift that."""

from collections.abc import Mapping

from reconciler.manifest.problem import Loc
from reconciler.manifest.tree import Node, locate
from reconciler.plan.ids import Place

NODE = "node"
MODEL = "model"
Suspends = Mapping[tuple[str, str], Place]
"""By kind and name; the name of the spec's own, which is for every node, is empty."""


def suspends(file: str, root: Node, values: object) -> Suspends:
    """Of a valid document. `values`: its plain ones."""
    spec = _map(_map(values).get("spec"))
    found: dict[tuple[str, str], Loc] = {}
    if spec.get("suspend") is True:
        found[NODE, ""] = ("spec", "suspend")
    for node, settings in _map(spec.get("node_settings")).items():
        if _map(settings).get("suspend") is True:
            found[NODE, node] = ("spec", "node_settings", node, "suspend")
    models = spec.get("models")
    for index, model in enumerate(models if isinstance(models, list) else ()):
        if _map(model).get("suspend") is True:
            found[MODEL, str(_map(model)["name"])] = ("spec", "models", index, "suspend")
    return {key: _place(file, root, loc) for key, loc in found.items()}


def _place(file: str, root: Node, loc: Loc) -> Place:
    line, column = locate(root, loc, key=True)
    return Place(file=file, line=line, column=column)


def _map(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}
