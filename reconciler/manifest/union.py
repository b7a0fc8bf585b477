"""All files and documents together: a union, never an overlay (design §4)."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from pydantic import JsonValue

from reconciler.manifest.claims import clashes
from reconciler.manifest.family import LLAMA, backend_family
from reconciler.manifest.flag_places import Places
from reconciler.manifest.model import Defaults, Fallback, Model
from reconciler.manifest.parse import ParsedFile, PlacedDocument
from reconciler.manifest.policy import canonical
from reconciler.manifest.problem import Problem
from reconciler.manifest.rail_fields import NodeSettings, windows_of
from reconciler.manifest.rail_places import Suspends
from reconciler.plan.desired import Timeouts
from reconciler.plan.ids import Place
from reconciler.plan.maintenance import Window
from reconciler.plan.stop_limit import StopLimit, stop_limit_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestModel:
    """A model with its document's defaults merged in. Flags are spelled with underscores."""

    model: Model
    place: Place
    timeouts: Timeouts
    extra_args: Mapping[str, JsonValue]
    fallback_args: Mapping[str, JsonValue] = field(default_factory=dict)
    flag_places: Places = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """The whole manifest. `models` are sorted by name; names and aliases are unique.

    `allow_empty` is true if any document says so, of `stop_limit` the strictest that is written
    counts, windows and confirmations are those of all documents. `suspends`: where.
    """

    models: tuple[ManifestModel, ...] = ()
    suspends: Suspends = field(default_factory=dict)
    allow_empty: bool = False
    stop_limits: tuple[StopLimit, ...] = ()
    confirms: frozenset[str] = frozenset()
    windows: tuple[Window, ...] = ()
    node_settings: Mapping[str, NodeSettings] = field(default_factory=dict)


def union(files: Iterable[ParsedFile]) -> Manifest:
    """The union of valid files that do not clash (`file_clashes` is empty)."""
    placed = [document for file in files for document in file.documents]
    specs = [document.document.spec for document in placed]
    models = [model for document in placed for model in _models(document)]
    return Manifest(
        models=tuple(sorted(models, key=lambda model: model.model.name)),
        suspends={key: at for document in placed for key, at in document.suspends.items()},
        allow_empty=any(spec.allow_empty for spec in specs),
        stop_limits=tuple(
            limit
            for spec in specs
            if spec.stop_limit is not None and (limit := stop_limit_of(spec.stop_limit)) is not None
        ),
        confirms=frozenset(spec.confirm_stop for spec in specs if spec.confirm_stop is not None),
        windows=tuple(each for spec in specs for each in windows_of(spec.maintenance_windows)),
        node_settings={
            node: settings for spec in specs for node, settings in spec.node_settings.items()
        },
    )


def file_clashes(files: Iterable[ParsedFile]) -> tuple[Problem, ...]:
    """What files claim from each other, whatever their order; not what clashes within one."""
    ordered = sorted(files, key=lambda file: file.name)
    return tuple(
        problem
        for problem in clashes(file.claims for file in ordered)
        if len({place.file for place in _places(problem)}) > 1
    )


def clashing_files(problems: Iterable[Problem]) -> frozenset[str]:
    """The names of the files that these clashes speak of."""
    return frozenset(place.file for problem in problems for place in _places(problem))


def _places(problem: Problem) -> tuple[Place, ...]:
    return (problem.place, *problem.related) if problem.place else problem.related


def _models(placed: PlacedDocument) -> Iterator[ManifestModel]:
    spec = placed.document.spec
    of_models = zip(spec.models, placed.model_places, placed.flag_places, strict=True)
    for model, place, flag_places in of_models:
        yield ManifestModel(
            model=model,
            place=place,
            timeouts=_timeouts(spec.defaults, model),
            extra_args=_extra_args(spec.defaults, model.extra_args, family_of(model)),
            fallback_args=_fallback_args(spec.defaults, model.fallback),
            flag_places={**_default_places(placed.default_places, model), **flag_places},
        )


def _default_places(defaults: Mapping[str, Places], model: Model) -> dict[str, Place]:
    found = {f"extra_args.{flag}": at for flag, at in defaults[family_of(model)].items()}
    if model.fallback is not None:
        more = defaults[family_of(model.fallback)]
        found |= {f"fallback.extra_args.{flag}": at for flag, at in more.items()}
    return found


def _timeouts(defaults: Defaults, model: Model) -> Timeouts:
    written = {
        **defaults.timeouts.model_dump(exclude_unset=True),
        **model.timeouts.model_dump(exclude_unset=True),
    }
    return Timeouts(**written)


def family_of(model: Model | Fallback) -> str:
    """The family that its own files are for."""
    backend, weights = "auto", "auto"
    if isinstance(model, Model):
        backend, weights = model.backend, model.format
    return backend_family(
        backend=backend,
        weights=weights,
        source=model.source,
        file=model.file,
    )


def _fallback_args(defaults: Defaults, fallback: Fallback | None) -> dict[str, JsonValue]:
    if fallback is None:
        return {}
    return _extra_args(defaults, fallback.extra_args, family_of(fallback))


def _extra_args(
    defaults: Defaults, own: Mapping[str, JsonValue], family: str
) -> dict[str, JsonValue]:
    base = defaults.extra_args.llama if family == LLAMA else defaults.extra_args.vllm
    merged = {canonical(flag): value for flag, value in base.items()}
    merged |= {canonical(flag): value for flag, value in own.items()}
    return {flag: value for flag, value in merged.items() if value is not None}
