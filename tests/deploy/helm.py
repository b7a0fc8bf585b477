"""The real helm, which `make test-deploy` has installed."""

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts" / "xgen-model"
HELM = ROOT / ".kubectl" / "helm"
MISSING = "no prebuilt kubectl for this machine"
"""The reason of a skip: helm comes in the same package, for x86-64 alone."""


class HelmFailed(AssertionError):
    """What helm said on its standard error."""


def helm(*arguments: str, home: Path) -> str:
    """Run it with no other settings than ours.

    Args:
        home: A folder for what it keeps.

    Returns:
        Its standard output.

    Raises:
        HelmFailed: It ended with another status than 0.
    """
    environment = {"PATH": os.environ["PATH"], "HOME": str(home)}
    done = subprocess.run(
        [str(HELM), *arguments], env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise HelmFailed(f"{done.stderr}\n{done.stdout}")
    return done.stdout


def render(
    *arguments: str, home: Path, release: str = "xgen", namespace: str = "models"
) -> list[Any]:
    """The objects of a release, in helm's order.

    Args:
        arguments: More for `helm template`: `--set`, `-f`, `--kube-version`, `--api-versions`.

    Raises:
        HelmFailed: helm refused the values.
    """
    text = helm("template", release, str(CHART), "--namespace", namespace, *arguments, home=home)
    return [each for each in yaml.safe_load_all(text) if each is not None]
