"""No test is left out unseen: skips are judged, and those of other lanes are counted.

Under CI, a skip for a reason that is not known here is a failure. All of it holds with pytest-xdist
too, whose workers collect and whose controller reports.
"""

import os
import signal
from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.observe.gpu_libraries import GpuLibraries, build

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

# Under nohup, or in a shell's background, the run stays deaf; what it starts must not inherit that.
for each in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(each) is signal.SIG_IGN:
        signal.signal(each, lambda *_: None)

KNOWN = (
    "needs the right to mount",
    "no user namespace with a limit of its own",
    "no pid namespace of our own",
    "no cgroup v2 that can be written",
    "no prebuilt llama-server for this machine",
    "no network namespaces of our own",
    "no packet queues (NFQUEUE) in this kernel",
    "no aiperf for this Python",
    "no prebuilt kubectl for this machine",
    "no prebuilt hadolint for this machine",
)
"""What a machine may lack that the tests cannot install; each is printed at the end of the run."""

LANES = {"engine": "test-engines", "deploy": "test-deploy", "net": "test-net", "slow": "test-slow"}
"""What runs the tests with a mark that `make test` leaves out."""

_LEFT_OUT = pytest.StashKey[Counter[str]]()
_FROM_WORKER = "left_out"


@pytest.fixture(scope="session")
def libraries(tmp_path_factory: pytest.TempPathFactory) -> GpuLibraries:
    """In the place of the GPU drivers' own, compiled once."""
    return build(tmp_path_factory.mktemp("gpu-libraries"))


def pytest_deselected(items: list[pytest.Item]) -> None:
    for item in items:
        mark = next((mark for mark in LANES if item.get_closest_marker(mark) is not None), None)
        if mark is not None:
            item.config.stash.setdefault(_LEFT_OUT, Counter())[mark] += 1


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker has ended. Each of them collects everything, so their counts are the same."""
    left_out = getattr(node, "workeroutput", {}).get(_FROM_WORKER, {})
    node.config.stash[_LEFT_OUT] = Counter(left_out)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for report in terminalreporter.stats.get("skipped", []):
        if not _known(report):
            terminalreporter.write_line(f"unexpected skip: {report.nodeid}", red=True)
    left_out = terminalreporter.config.stash.get(_LEFT_OUT, Counter[str]())
    for mark, count in sorted(left_out.items()):
        terminalreporter.write_line(f"{count} {mark} tests left out: `make {LANES[mark]}`")


def pytest_sessionfinish(session: pytest.Session) -> None:
    worker = getattr(session.config, "workeroutput", None)
    if worker is not None:
        left_out: Counter[str] = session.config.stash.get(_LEFT_OUT, Counter())
        worker[_FROM_WORKER] = dict(left_out)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if os.environ.get("CI") and not all(map(_known, skipped)):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _known(report: pytest.TestReport) -> bool:
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return any(reason in text for reason in KNOWN)
