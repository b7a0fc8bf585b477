"""The real promtool, and what it is given to judge alerts by."""

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.helm import ROOT

RULES = ROOT / "charts" / "xgen-model" / "files" / "rules.yaml"
CASES = Path(__file__).with_name("alerts.yaml")


class PromtoolFailed(AssertionError):
    """What promtool said."""


def promtool(*arguments: str, given: str = "") -> str:
    """Run it.

    Args:
        given: Its standard input.

    Raises:
        PromtoolFailed: It ended with another status than 0, or had a remark to make.
    """
    done = subprocess.run(
        ["promtool", *arguments], input=given, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise PromtoolFailed(f"{done.stderr}\n{done.stdout}")
    return done.stdout + done.stderr


def alerts(rules: Mapping[str, Any]) -> dict[str, Any]:
    """The rules by the names of their alerts."""
    return {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}


def cases() -> Any:
    """Of each alert one case in which it fires, and those in which it does not."""
    return yaml.safe_load(CASES.read_text(encoding="utf-8"))


def unit_tests(rules: Path, *, target: Mapping[str, str]) -> dict[str, Any]:
    """All cases as a file of `promtool test rules`.

    Args:
        target: Labels that each series has from its target.
    """
    return {"rule_files": [str(rules)], "evaluation_interval": "1m", "tests": [*_tests(target)]}


def _tests(target: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    for alert, told in cases().items():
        fires = told["fires"]
        yield _test(alert, fires, target, labels=fires["labels"], count=1)
        for quiet in told["quiet"]:
            yield _test(alert, quiet, target, labels={}, count=0)


def _test(
    alert: str,
    case: Mapping[str, Any],
    target: Mapping[str, str],
    *,
    labels: Mapping[str, str],
    count: int,
) -> dict[str, Any]:
    more = "".join(f',{name}="{value}"' for name, value in target.items())
    firing = {"alertname": alert, "alertstate": "firing", **labels}
    matchers = ",".join(f'{name}="{value}"' for name, value in firing.items())
    return {
        "interval": "1m",
        "input_series": [
            {"series": name.replace("}", f"{more}}}"), "values": values}
            for name, values in case["series"].items()
        ],
        "promql_expr_test": [
            {
                "expr": f"count(ALERTS{{{matchers}}}) or vector(0)",
                "eval_time": case["at"],
                "exp_samples": [{"labels": "{}", "value": count}],
            }
        ],
    }
