"""`python -m tests.bench [--quick]`: the benchmarks, one after the other, and their results."""

import argparse
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import msgspec

from tests.bench import proxy, reconcile
from tests.bench.page import page, tables
from tests.e2e.agent import REPOSITORY


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, _end)
    through = proxy.measure(proxy.QUICK if options.quick else proxy.FULL)
    loop = reconcile.measure(reconcile.QUICK if options.quick else reconcile.FULL)
    date = datetime.now(UTC).date().isoformat()
    results = {"date": date, "quick": options.quick, "proxy": through, "reconcile": loop}
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(results)))
    if options.page:
        options.page.write_text(page(through, loop, date=date), encoding="utf-8")
    print(tables(through, loop))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench")
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures say little")
    parser.add_argument(
        "--json", type=Path, default=REPOSITORY / "tests/bench/results/bench.json", help="results"
    )
    parser.add_argument("--page", type=Path, help="a Markdown page to write")
    return parser.parse_args()


def _end(number: int, frame: FrameType | None) -> None:
    """What was started ends with its contexts."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
