"""What of the cache must stay, and for which models (PURE)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Holding:
    """Files of one revision. `paths`: relative to it."""

    prefix: str
    digest: str
    paths: frozenset[str]


Revision = tuple[str, str]
"""Prefix and digest."""


@dataclass(frozen=True, slots=True)
class Pins:
    """Which models need which files, by revision and path."""

    by_revision: Mapping[Revision, Mapping[str, frozenset[str]]] = field(default_factory=dict)

    def models(self, prefix: str, digest: str, path: str) -> frozenset[str]:
        return self.by_revision.get((prefix, digest), {}).get(path, frozenset())

    def of_revision(self, prefix: str, digest: str) -> frozenset[str]:
        """All models that need a file of it."""
        return frozenset().union(*self.by_revision.get((prefix, digest), {}).values())

    def all_models(self) -> frozenset[str]:
        every = (models for paths in self.by_revision.values() for models in paths.values())
        return frozenset().union(*every)

    def holdings(self) -> tuple[Holding, ...]:
        return tuple(
            Holding(prefix=prefix, digest=digest, paths=frozenset(paths))
            for (prefix, digest), paths in sorted(self.by_revision.items())
        )

    def without(self, model: str) -> "Pins":
        """The same, if that model needed nothing."""
        left = {
            revision: {
                path: models - {model} for path, models in paths.items() if models != {model}
            }
            for revision, paths in self.by_revision.items()
        }
        return Pins({revision: paths for revision, paths in left.items() if paths})

    def told_with(self, where: str) -> "Pins":
        """The same, of another agent's models, which may have the names of ours."""
        return Pins(
            {
                revision: {
                    path: frozenset(f"{model} {where}" for model in models)
                    for path, models in paths.items()
                }
                for revision, paths in self.by_revision.items()
            }
        )

    def __or__(self, other: "Pins") -> "Pins":
        return _merged(
            (models, Holding(prefix=prefix, digest=digest, paths=frozenset({path})))
            for pins in (self, other)
            for (prefix, digest), paths in pins.by_revision.items()
            for path, models in paths.items()
        )

    def misses(self, later: "Pins") -> bool:
        """Whether anything of this is not in `later`."""
        return any(
            path not in later.by_revision.get(revision, {})
            for revision, paths in self.by_revision.items()
            for path in paths
        )


def pins_of(needs: Iterable[tuple[str, Iterable[Holding]]]) -> Pins:
    """Models by name with what each needs: as the manifest wants it, and as it runs now."""
    return _merged(
        (frozenset({model}), holding) for model, holdings in needs for holding in holdings
    )


def _merged(needs: Iterable[tuple[frozenset[str], Holding]]) -> Pins:
    found: dict[Revision, dict[str, frozenset[str]]] = {}
    for models, holding in needs:
        paths = found.setdefault((holding.prefix, holding.digest), {})
        for path in holding.paths:
            paths[path] = paths.get(path, frozenset()) | models
    return Pins(found)
