"""What each document claims for itself alone: names, aliases, node settings, GPUs.

Claims are read from plain values, so that a file with other mistakes still shows them.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from reconciler.manifest.problem import Loc, Problem, dotted, shown
from reconciler.manifest.tree import Node, locate, plain
from reconciler.plan.desired import JsonValue
from reconciler.plan.gpus import one_spelling
from reconciler.plan.ids import Place
from reconciler.plan.shares import size_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One claim to something. `model`: who claims it (of a node's settings: the node)."""

    place: Place
    path: str
    what: str
    model: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuClaim:
    """`gpu`: as it is written. `nodes` None: every node. `share`: bytes, a fraction up to 1, or
    None for the whole GPU."""

    claim: Claim
    gpu: str
    nodes: frozenset[str] | None
    share: float | None

    @property
    def fraction(self) -> float:
        """What is known of the share without knowing the GPU: 0 for a share in bytes."""
        return self.share if self.share is not None and self.share <= 1 else 0.0


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
    gpus: dict[str, _Sharing] = {}
    for claims in files:
        yield from _repeated(claims.names, names)
        yield from _repeated(claims.node_settings, settings)
        for gpu in claims.gpus:
            problem = gpus.setdefault(one_spelling(gpu.gpu), _Sharing()).add(gpu)
            if problem is not None:
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
        first: dict[str, int] = {}
        for position, gpu in enumerate(ids):
            first.setdefault(one_spelling(str(gpu)), position)
        for position in first.values():
            yield GpuClaim(
                claim=self._claim("GPU", ("gpu_ids", position)),
                gpu=str(ids[position]),
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
            message = f"{shown(key)} is already {_as_whose(first)}, at {first.place}"
            yield Problem(
                place=claim.place, path=claim.path, message=message, related=(first.place,)
            )


def _as_whose(claim: Claim) -> str:
    if claim.what == "alias":
        return f"an alias of the model {shown(claim.model)}"
    return "the name of a model" if claim.what == "name" else "a node with settings"


@dataclass(slots=True)
class _Holders:
    """Who holds one GPU of one node so far. `whole`: the first that gives no share of it."""

    first: GpuClaim | None = None
    whole: GpuClaim | None = None
    fractions: float = 0.0

    def clash(self, claim: GpuClaim) -> tuple[GpuClaim, str] | None:
        if self.first is None:
            return None
        if claim.share is None or self.whole is not None:
            return self.whole or self.first, "to share it, both must give gpu_memory"
        if claim.fraction and self.fractions + claim.fraction > 1.0 + 1e-9:
            return self.first, "their shares sum up to more than 1"
        return None

    def add(self, claim: GpuClaim) -> None:
        self.first = self.first or claim
        self.fractions += claim.fraction
        if claim.share is None:
            self.whole = self.whole or claim


@dataclass(slots=True)
class _Sharing:
    """One GPU by what it is called, on the nodes that are named, and on every other."""

    by_node: dict[str, _Holders] = field(default_factory=dict)
    others: _Holders = field(default_factory=_Holders)

    def add(self, claim: GpuClaim) -> Problem | None:
        """Take the claim up; the problem if it clashes on any node."""
        if claim.nodes is None:
            holders = [self.others, *self.by_node.values()]
        else:
            holders = [self._on(node) for node in sorted(claim.nodes)]
        clashes = [clash for held in holders if (clash := held.clash(claim)) is not None]
        for held in holders:
            held.add(claim)
        if not clashes:
            return None
        first, why = clashes[0]
        place = first.claim.place
        whose = f"is claimed by the model {shown(first.claim.model)} too, at {place}"
        return Problem(
            place=claim.claim.place,
            path=claim.claim.path,
            message=f"the GPU {claim.gpu} {whose}; {why}",
            related=(place,),
        )

    def _on(self, node: str) -> _Holders:
        return self.by_node.setdefault(node, replace(self.others))


def _share(value: JsonValue) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return size_bytes(value) if isinstance(value, str) else None


def _get(value: JsonValue, key: str) -> JsonValue:
    return value.get(key) if isinstance(value, Mapping) else None


def _place(file: str, root: Node, loc: Loc, *, key: bool = False) -> Place:
    line, column = locate(root, loc, key=key)
    return Place(file=file, line=line, column=column)
