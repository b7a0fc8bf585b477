"""What each document claims for itself alone: names, aliases, node settings, GPUs.

Claims are read from plain values, so that a file with other mistakes still shows them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from reconciler.manifest.fields import size_bytes
from reconciler.manifest.problem import Loc, Problem, dotted
from reconciler.manifest.tree import Node, locate, plain
from reconciler.plan.desired import JsonValue
from reconciler.plan.ids import Place


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim to something. `model`: who claims it (of a node's settings: the node)."""

    place: Place
    path: str
    what: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClaim:
    """`nodes` None: every node. `share`: bytes, a fraction up to 1, or None for the whole GPU."""

    claim: Claim
    gpu: str
    nodes: frozenset[str] | None
    share: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """All claims of one file, in its order."""

    names: tuple[tuple[str, Claim], ...] = ()
    node_settings: tuple[tuple[str, Claim], ...] = ()
    gpus: tuple[GpuClaim, ...] = ()

    @property
    def models(self) -> frozenset[str]:
        """The names (not aliases) of the models."""
        return frozenset(name for name, claim in self.names if claim.what == "name")


def claims_of(file: str, documents: Iterable[Node]) -> Claims:
    """The claims of these manifests, whatever else is wrong with them."""
    names: list[tuple[str, Claim]] = []
    settings: list[tuple[str, Claim]] = []
    gpus: list[GpuClaim] = []
    for root in documents:
        spec = _get(plain(root), "spec")
        models, nodes = _get(spec, "models"), _get(spec, "node_settings")
        for index, model in enumerate(models if isinstance(models, list) else []):
            owner = _Owner(file=file, root=root, index=index, model=model)
            names.extend(owner.names())
            gpus.extend(owner.gpus())
        for node in nodes if isinstance(nodes, dict) else {}:
            loc: Loc = ("spec", "node_settings", node)
            place = _place(file, root, loc, key=True)
            claim = Claim(place=place, path=dotted(loc), what="node_settings", model=node)
            settings.append((node, claim))
    return Claims(names=tuple(names), node_settings=tuple(settings), gpus=tuple(gpus))


def clashes(files: Iterable[Claims]) -> Iterator[Problem]:
    """One problem for each claim to what another has already, at the later of the two places."""
    names: dict[str, Claim] = {}
    settings: dict[str, Claim] = {}
    gpus: dict[str, list[GpuClaim]] = {}
    for claims in files:
        yield from _repeated(claims.names, names)
        yield from _repeated(claims.node_settings, settings)
        for gpu in claims.gpus:
            gpus.setdefault(gpu.gpu, []).append(gpu)
    for sharing in gpus.values():
        for first, second in combinations(sharing, 2):
            if (problem := _gpu_clash(first, second)) is not None:
                yield problem


@dataclass(frozen=True, slots=True, kw_only=True)
class _Owner:
    """One entry of `spec.models`, of whatever shape."""

    file: str
    root: Node
    index: int
    model: JsonValue

    def names(self) -> Iterator[tuple[str, Claim]]:
        name, aliases = _get(self.model, "name"), _get(self.model, "aliases")
        if isinstance(name, str):
            yield name, self._claim("name", ("name",))
        for position, alias in enumerate(aliases if isinstance(aliases, list) else []):
            if isinstance(alias, str):
                yield alias, self._claim("alias", ("aliases", position))

    def gpus(self) -> Iterator[GpuClaim]:
        ids, nodes = _get(self.model, "gpu_ids"), _get(self.model, "nodes")
        if _get(self.model, "enabled") is False or not isinstance(ids, list):
            return
        names = [str(node) for node in nodes] if isinstance(nodes, list) else None
        for position, gpu in enumerate(ids):
            yield GpuClaim(
                claim=self._claim("GPU", ("gpu_ids", position)),
                gpu=str(gpu),
                nodes=None if names is None else frozenset(names),
                share=_share(_get(self.model, "gpu_memory")),
            )

    def _claim(self, what: str, below: Loc) -> Claim:
        loc: Loc = ("spec", "models", self.index, *below)
        place = _place(self.file, self.root, loc)
        owner = str(_get(self.model, "name"))
        return Claim(place=place, path=dotted(loc), what=what, model=owner)


def _repeated(claims: Iterable[tuple[str, Claim]], seen: dict[str, Claim]) -> Iterator[Problem]:
    for key, claim in claims:
        first = seen.setdefault(key, claim)
        if first is not claim:
            message = f"{key!r} is already {_as_whose(first)}, at {first.place}"
            yield Problem(
                place=claim.place, path=claim.path, message=message, related=(first.place,)
            )


def _as_whose(claim: Claim) -> str:
    if claim.what == "alias":
        return f"an alias of the model {claim.model!r}"
    return "the name of a model" if claim.what == "name" else "a node with settings"


def _gpu_clash(first: GpuClaim, second: GpuClaim) -> Problem | None:
    if first.nodes is not None and second.nodes is not None and not first.nodes & second.nodes:
        return None
    if first.share is not None and second.share is not None:
        fractions = first.share <= 1 and second.share <= 1
        if not fractions or first.share + second.share <= 1:
            return None
        why = "and the shares sum up to more than 1"
    else:
        why = "and both must give gpu_memory to share it"
    model, place = first.claim.model, first.claim.place
    return Problem(
        place=second.claim.place,
        path=second.claim.path,
        message=f"the GPU {second.gpu} is claimed by the model {model!r} too, at {place}, {why}",
        related=(place,),
    )


def _share(value: JsonValue) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return size_bytes(value) if isinstance(value, str) else None


def _get(value: JsonValue, key: str) -> JsonValue:
    return value.get(key) if isinstance(value, Mapping) else None


def _place(file: str, root: Node, loc: Loc, *, key: bool = False) -> Place:
    line, column = locate(root, loc, key=key)
    return Place(file=file, line=line, column=column)
