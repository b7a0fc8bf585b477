"""`make chaos CHAOS_SEED=… CHAOS_STEPS=…` runs one seed; CI a known and a new one, for short."""

import os
import secrets
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from reconciler.apply.reaper import become_subreaper
from tests.chaos.run import Run
from tests.chaos.world import world

pytestmark = pytest.mark.slow

KNOWN_SEED = 6
SEED = os.environ.get("XGEN_CHAOS_SEED") or None
STEPS = int(os.environ.get("XGEN_CHAOS_STEPS") or "20")


@pytest.fixture
def say(pytestconfig: pytest.Config) -> Callable[[str], None]:
    """Past pytest's capture, at once: where it passes, too, and from a worker of pytest-xdist."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def print_line(line: str) -> None:
        with capture.global_and_fixture_disabled():
            print(f"\n{line}", file=sys.stderr, flush=True)

    return print_line


@pytest.mark.timeout(900 + 12 * STEPS)
@pytest.mark.parametrize("seed", ["known", "new"] if SEED is None else [SEED])
def test_all_settles_whatever_is_done_and_in_whatever_order(
    seed: str, tmp_path: Path, say: Callable[[str], None]
) -> None:
    """Scenarios 1 to 19 and 38 to 44, at random and at once."""
    become_subreaper()
    numbers = {"known": KNOWN_SEED, "new": secrets.randbelow(1_000_000)}
    number = numbers[seed] if seed in numbers else int(seed)
    again = f"make chaos CHAOS_SEED={number} CHAOS_STEPS={STEPS}"
    say(f"chaos: seed {number}; once more: {again}")
    with world(tmp_path) as made:
        run = Run(made, number, STEPS)
        try:
            run.run()
        except Exception as exc:
            steps = "\n".join(run.log)
            log = made.agent.recent_log
            raise AssertionError(
                f"{exc}\n\nThe steps:\n{steps}\n\nThe agent's log ends with:\n{log}\n\n"
                f"Seed {number}. Once more: {again}"
            ) from exc
