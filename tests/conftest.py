"""No test is left out unseen: skips are judged, and tests of real engines are counted.

Under CI, a skip for a reason that is not known here is a failure. All of it holds with pytest-xdist
too, whose workers collect and whose controller reports.
"""

import os
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# On a new machine the first draws build caches; a slow draw is no fault of the code under test.
# Examples are drawn anew in CI, too.
settings.register_profile(
    "shared",
    deadline=None,
    derandomize=False,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("shared")

# Where pytest has loaded readline, it gives these to its workers; a test says the size itself.
os.environ.pop("COLUMNS", None)
os.environ.pop("LINES", None)

KNOWN = (
    "needs the right to mount",
    "no user namespace with a limit of its own",
    "no prebuilt llama-server for this machine",
    "no aiperf for this Python",
)
"""What a machine may lack that the tests cannot install; each is printed at the end of the run."""

_ENGINES_LEFT_OUT = pytest.StashKey[int]()
_FROM_WORKER = "engines_left_out"


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("engine") is not None:
            stash = item.config.stash
            stash[_ENGINES_LEFT_OUT] = stash.get(_ENGINES_LEFT_OUT, 0) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended. Each of them collects everything, so their counts are the same."""
    left_out = getattr(node, "workeroutput", {}).get(_FROM_WORKER, 0)
    node.config.stash[_ENGINES_LEFT_OUT] = left_out


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("skipped", []):
        if not _known(report):
            terminalreporter.write_line(f"unexpected skip: {report.nodeid}", red=True)
    if left_out := terminalreporter.config.stash.get(_ENGINES_LEFT_OUT, 0):
        terminalreporter.write_line(
            f"{left_out} tests with real engines left out; `make test-engines` runs them"
        )


def pytest_sessionfinish(session: pytest.Session) -> None:
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        worker[_FROM_WORKER] = session.config.stash.get(_ENGINES_LEFT_OUT, 0)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and not all(map(_known, skipped)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _known(report: pytest.TestReport) -> bool:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return any(reason in text for reason in KNOWN)
