"""The values that a model's `env` refers to: read at each start, kept nowhere."""

from collections.abc import Mapping
from pathlib import Path

from reconciler.errors import Rejected, Transient
from reconciler.plan.desired import DesiredModel, SecretRef


def secret_values(model: DesiredModel, environment: Mapping[str, str]) -> Mapping[str, str]:
    """The values of `from_env` and `from_file`, by variable. Raises Rejected or Transient."""
    values: dict[str, str] = {}
    for name, value in model.spec.env.items():
        if not isinstance(value, SecretRef):
            continue
        if value.from_env is not None:
            found = environment.get(value.from_env)
            if found is None:
                raise Rejected(
                    f"cannot start {model.name}: env {name} is from_env {value.from_env}, "
                    "which the agent's environment does not have"
                )
            values[name] = found
        elif value.from_file is not None:
            try:
                values[name] = Path(value.from_file).read_text(encoding="utf-8").rstrip("\n")
            except (OSError, UnicodeDecodeError) as exc:
                raise Transient(
                    f"cannot start {model.name}: env {name} is from_file {value.from_file}: {exc}"
                ) from exc
    return values
