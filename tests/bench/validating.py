"""What `xgen-model validate` costs: the whole command, and the work on the manifest alone.

CPU of a process is the kernel's account of a child that has ended, user and system time.
"""

import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from reconciler.manifest.inspection import inspect
from reconciler.manifest.resolve import FileInput

_COMMAND = Path(sys.executable).with_name("xgen-model")


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    models: tuple[int, ...] = (1, 100, 1000)
    rounds: int = 7


FULL = Effort()
QUICK = Effort(models=(1, 10), rounds=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Validated:
    """Milliseconds, one figure a round. `command`: CPU of the process from its exec to its end.
    `work`: CPU from the bytes to every problem, in a process that has imported it all."""

    models: int
    command: tuple[float, ...]
    work: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateResult:
    effort: Effort
    manifests: tuple[Validated, ...]


def measure(effort: Effort) -> ValidateResult:
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        return ValidateResult(
            effort=effort,
            manifests=tuple(
                _validated(Path(folder) / f"{count}.yaml", count, effort.rounds)
                for count in effort.models
            ),
        )


def _validated(file: Path, count: int, rounds: int) -> Validated:
    file.write_text(text(count))
    content = file.read_bytes()
    return Validated(
        models=count,
        command=tuple(_of_command(file) for _ in range(rounds)),
        work=tuple(_of_work(file.name, content) for _ in range(rounds)),
    )


def _of_command(file: Path) -> float:
    process = subprocess.Popen([_COMMAND, "validate", str(file)], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"xgen-model validate {file} ended with {process.returncode}")
    return (usage.ru_utime + usage.ru_stime) * 1e3


def _of_work(name: str, content: bytes) -> float:
    before = time.process_time()
    found = inspect([FileInput(name=name, content=content)])
    spent = time.process_time() - before
    if found.problems or found.manifest is None:
        raise RuntimeError(f"cannot validate {name}: {found.problems}")
    return spent * 1e3


def text(models: int) -> str:
    """Entries of a dozen lines each, as people write them."""
    return _HEAD + "".join(_MODEL.format(number=number) for number in range(models))


_HEAD = """\
apiVersion: xgen.io/v1alpha1
kind: ModelManifest
metadata: {name: production}
spec:
  defaults: {timeouts: {ready: 60m}, extra_args: {llama: {parallel: 2}}}
  models:
"""
_MODEL = """\
    - name: model-{number}
      aliases: [alias-{number}]
      source: gguf/org_model-{number}
      file: model-{number}-q4_k_m.gguf   # the smallest that answers well
      type: llm
      gpus: 1
      nodes: [node-{number}]
      extra_args: {{ctx_size: 8192, flash_attn: "on"}}
      env: {{HF_TOKEN: {{from_env: HF_TOKEN}}}}
      timeouts: {{ready: 30m, drain: 60s}}
      priority: {number}

"""
