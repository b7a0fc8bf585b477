"""Where the flags and variables of models stand, for what a node refuses of them."""

from collections.abc import Mapping

from reconciler.manifest.family import LLAMA, VLLM
from reconciler.manifest.policy import canonical
from reconciler.manifest.tree import MappingNode, Node, SequenceNode
from reconciler.plan.ids import Place

Places = Mapping[str, Place]
_MAPS = (("extra_args",), ("env",), ("fallback", "extra_args"), ("fallback", "env"))


def places_of_models(file: str, root: Node) -> tuple[Places, ...]:
    """Of each model in turn: by `extra_args.NAME`, `env.NAME`, `fallback.extra_args.NAME` and
    `fallback.env.NAME`, spelled with underscores."""
    models = _below(root, "spec", "models")
    items = models.items if isinstance(models, SequenceNode) else ()
    return tuple(
        {
            f"{'.'.join(way)}.{name}": place
            for way in _MAPS
            for name, place in _keys(file, _below(model, *way)).items()
        }
        for model in items
    )


def places_of_defaults(file: str, root: Node) -> Mapping[str, Places]:
    """Of the flags below `defaults.extra_args`, by family."""
    defaults = _below(root, "spec", "defaults", "extra_args")
    return {family: _keys(file, _below(defaults, family)) for family in (LLAMA, VLLM)}


def _below(node: Node | None, *way: str) -> Node | None:
    for key in way:
        entry = node.entries.get(key) if isinstance(node, MappingNode) else None
        node = entry.node if entry is not None else None
    return node


def _keys(file: str, node: Node | None) -> dict[str, Place]:
    entries = node.entries if isinstance(node, MappingNode) else {}
    return {
        canonical(key): Place(file=file, line=entry.line, column=entry.column)
        for key, entry in entries.items()
    }
