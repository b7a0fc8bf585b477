"""No test is skipped unseen: under CI, a skip for a reason that is not known here is a failure."""

import os

import pytest
from hypothesis import HealthCheck, settings

# On a new machine the first draws build caches; a slow draw is no fault of the code under test.
settings.register_profile(
    "shared", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("shared")

KNOWN = (
    "needs the right to mount",
    "no user namespace with a limit of its own",
    "no prebuilt llama-server for this machine",
)
"""What a machine may lack that the tests cannot install; each is printed at the end of the run."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("skipped", []):
        if not _known(report):
            terminalreporter.write_line(f"unexpected skip: {report.nodeid}", red=True)


def pytest_sessionfinish(session: pytest.Session) -> None:
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and not all(map(_known, skipped)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _known(report: pytest.TestReport) -> bool:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return any(reason in text for reason in KNOWN)
