"""What this node lets a model ask of its engine: the policy, for one build's flags (PURE)."""

from collections.abc import Iterator

from reconciler.backend.inventory import Build
from reconciler.errors import Rejected
from reconciler.manifest.family import LLAMA, VLLM
from reconciler.manifest.policy import (
    ALLOW_FLAG,
    ALLOW_VARIABLE,
    UNKNOWN_FLAG,
    Permissions,
    Ruling,
    canonical,
    flag_ruling,
    variable_ruling,
)
from reconciler.plan.desired import DesiredModel, ModelSpec


def need_permission(model: DesiredModel, build: Build, permissions: Permissions) -> None:
    """Raises Rejected for what is refused here, with its place and with what would allow it."""
    of = "" if model.stands_in_for is None else "fallback."
    for map, name, ruling, option, allowed in _rulings(model.spec, build, permissions):
        where = f"{of}{map}.{name}"
        place = model.flag_places.get(f"{of}{map}.{canonical(name)}", model.place)
        if ruling.never:
            raise Rejected(f"cannot use {where} ({place}): {ruling.reason}")
        if ruling.name not in allowed:
            raise Rejected(
                f"cannot use {where} ({place}): {ruling.reason}; if this node is to allow it, its "
                f"operator starts the agent with {option} {ruling.name}"
            )


def _rulings(
    spec: ModelSpec, build: Build, permissions: Permissions
) -> Iterator[tuple[str, str, Ruling, str, frozenset[str]]]:
    family = VLLM if build.id.startswith("vllm-") else LLAMA
    for key, value in spec.extra_args.items():
        option = f"--{canonical(key).replace('_', '-')}"
        if family == VLLM:
            option = option.partition(".")[0]
        flag = build.flags.find(option)
        names = flag.negations if flag and option in flag.negations else flag.names if flag else ()
        ruling = flag_ruling(family, key, value, names)
        if ruling and ruling.reason == UNKNOWN_FLAG and flag is None and build.flags.complete:
            continue  # nor does this build, which is said when it is put into words
        if ruling:
            yield "extra_args", key, ruling, ALLOW_FLAG, permissions.flags
    for name, told in spec.env.items():
        if ruling := variable_ruling(name, told):
            yield "env", name, ruling, ALLOW_VARIABLE, permissions.variables
