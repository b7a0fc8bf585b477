"""`python -m tests.gpu [--llama-server PATH] [--vllm PATH] [--json FILE]`: a table, and JSON.

Exit 0: all that could be checked is as it should be. 1: something is not. 77: there is no GPU.
"""

import argparse
import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from tests.e2e.agent import REPOSITORY
from tests.e2e.conftest import agents
from tests.gpu.engine_tour import ENGINES, Engine, Tour
from tests.gpu.ledger import Ledger, NotChecked, Told, Verdict
from tests.gpu.machine import Machine, identity_of, look, roomiest
from tests.gpu.vendor_tools import TOOLS, Tool, compare

NO_GPU = 77
_SECONDS = 420.0
"""For all checks; the end of an agent comes on top."""


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # agents end with us
    ledger = Ledger(_SECONDS)
    machine = look()
    ledger.check("gpus", "detection", lambda: _detected(machine))
    for tool in TOOLS:
        _compare(ledger, tool, machine)
    if machine.usable:
        for engine in ENGINES:
            _tour(ledger, engine, getattr(options, engine.option[2:].replace("-", "_")), machine)
    options.json.parent.mkdir(parents=True, exist_ok=True)
    written = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine.told,
        "checks": [asdict(check) for check in ledger.checks],
    }
    options.json.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return _end(ledger, machine, options.json)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="tests.gpu", description="Checks on this machine's GPUs.")
    for engine in ENGINES:
        found = shutil.which(engine.name)
        parser.add_argument(
            engine.option, metavar="PATH", default=found, help="its program [default: on PATH]"
        )
    parser.add_argument("--json", type=Path, default=REPOSITORY / "tests/gpu/results/gpu.json")
    return parser.parse_args()


def _detected(machine: Machine) -> Told:
    assert not machine.trouble, "; ".join(machine.trouble)
    unusable = [f"{identity_of(gpu)}: {gpu['unusable']}" for gpu in machine.told["gpus"]]
    said = [f"{gpu['index']}: {gpu['name']} {identity_of(gpu)}" for gpu in machine.usable]
    if not said:
        raise NotChecked(f"no GPU can be used here: {'; '.join(unusable) or machine.chain}")
    return Told(said="; ".join(said))


def _compare(ledger: Ledger, tool: Tool, machine: Machine) -> None:
    ledger.check("gpus", f"beside {tool.argv[0]}", lambda: compare(tool, machine.told["gpus"]))


def _tour(ledger: Ledger, engine: Engine, program: str | None, machine: Machine) -> None:
    try:
        if program is None:
            raise NotChecked(f"there is no {engine.name} on PATH; name one with {engine.option}")
        gpu = identity_of(roomiest(machine))
    except NotChecked as exc:
        ledger.passed_over(engine.name, iter(["loads"]), str(exc))
        return
    only = ("--gpu-mode", "node", "--max-parallel-loads", "1")
    with (
        _agents_end(ledger, engine),
        tempfile.TemporaryDirectory(prefix="xgen-gpu-") as folder,
        agents(Path(folder)) as make,
    ):
        Tour(engine, make(engine.option, program, *only, real=True), gpu, ledger).run()


@contextmanager
def _agents_end(ledger: Ledger, engine: Engine) -> Iterator[None]:
    """The end of the agents is a check of its own."""
    try:
        yield
    except AssertionError as exc:
        said = str(exc)

        def fail() -> Told:
            raise AssertionError(said)

        ledger.check(engine.name, "nothing is left", fail)


def _end(ledger: Ledger, machine: Machine, written: Path) -> int:
    counts = {verdict: 0 for verdict in Verdict}
    for check in ledger.checks:
        counts[check.verdict] += 1
    print(f"\n{', '.join(f'{count} {verdict}' for verdict, count in counts.items())}; {written}")
    if ledger.failed:
        return 1
    if not machine.usable:
        print("there is no GPU here that can be used: nothing of the engines was checked")
        return NO_GPU
    return 0


if __name__ == "__main__":
    sys.exit(main())
