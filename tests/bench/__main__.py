"""`python -m tests.bench [--quick] [--only PART]`: the benchmarks one after the other."""

import argparse
import resource
import signal
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import FrameType

import msgspec

from tests.bench.page import page, tables
from tests.bench.results import Part, measured
from tests.e2e.agent import REPOSITORY

_FILES = 16_384
"""2,000 streams at each of six servers at one time, all from here."""


def main() -> None:
    options = _options()
    signal.signal(signal.SIGTERM, _end)
    _allow_files(0 if options.quick else _FILES)
    results = measured(options.only or tuple(Part), quick=options.quick)
    date = datetime.now(UTC).date().isoformat()
    options.json.parent.mkdir(parents=True, exist_ok=True)
    written = {"date": date, "quick": options.quick, **msgspec.to_builtins(results)}
    options.json.write_bytes(msgspec.json.format(msgspec.json.encode(written)))
    if options.page:
        options.page.write_text(page(results, date=date), encoding="utf-8")
    print(tables(results))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.bench")
    parser.add_argument("--quick", action="store_true", help="a smoke test; its figures say little")
    parser.add_argument(
        "--only", action="append", type=Part, choices=list(Part), help="a part; may be given again"
    )
    parser.add_argument(
        "--json", type=Path, default=REPOSITORY / "tests/bench/results/bench.json", help="results"
    )
    parser.add_argument("--page", type=Path, help="a Markdown page to write, of all parts")
    options = parser.parse_args()
    if options.only and options.page:
        parser.error("the page has all parts: --page goes without --only")
    return options


def _allow_files(needed: int) -> None:
    """Use all open files that may be had here, and in all that is started."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most != resource.RLIM_INFINITY and most < needed:
        sys.exit(f"cannot open {needed:,} files: at most {most:,} are allowed (ulimit -Hn)")
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _end(number: int, frame: FrameType | None) -> None:
    """What was started ends with its contexts."""
    sys.exit(128 + number)


if __name__ == "__main__":
    main()
