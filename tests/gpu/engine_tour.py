"""One engine on one GPU under a real agent: what it answers, where it sits, what it takes."""

import os
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.e2e.agent import Agent, Entry
from tests.e2e.manifests import REAL_PREFIX, manifest
from tests.engines.tiny_models import write_llama
from tests.gpu.ledger import Ledger, NotChecked, Told
from tests.gpu.machine import Machine, family, identity_of, look
from tests.model_files import gemma
from tests.waiting import wait_for

_MIB = 2**20
_SHARE = 0.3
_SLACK_BYTES = 256 * _MIB
"""What others on the GPU may take and give meanwhile."""
_BACK_SECONDS = 30.0
_SPEC = (
    "  allow_empty: true\n  stop_limit: none\n"
    "  defaults: {timeouts: {ready: 3m, drain: 1s, stop: 5s}}\n"
)
_ON_GPU = ("-cuda", "-rocm", "-vulkan")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """`option`: of `run`, which names its program. `write`: puts a small model into a hub.
    `load_seconds`: the longest that a load of it takes."""

    name: str
    option: str
    source: str
    write: Callable[[Path], object]
    extra_args: str
    load_seconds: float

    def model(self, name: str, gpu: str, share: float = _SHARE) -> str:
        return (
            f"{{name: {name}, source: {self.source}, gpu_ids: ['{gpu}'], gpu_memory: {share}, "
            f"extra_args: {self.extra_args}}}"
        )


def _write_gemma(hub: Path) -> None:
    folder = hub / REAL_PREFIX
    folder.mkdir(parents=True)
    shutil.copyfile(gemma(), folder / "gemma.gguf")


ENGINES = (
    Engine(
        name="llama-server",
        option="--llama-server",
        source=REAL_PREFIX,
        write=_write_gemma,
        extra_args="{ctx_size: 2048}",
        load_seconds=60.0,
    ),
    Engine(
        name="vllm",
        option="--vllm",
        source="huggingface/tiny_llama",
        write=lambda hub: write_llama(hub / "huggingface" / "tiny_llama"),
        extra_args="{enforce_eager: true, max_model_len: 2048}",
        load_seconds=150.0,
    ),
)


class Tour:
    """`agent`: not started yet. `gpu`: as models name it."""

    def __init__(self, engine: Engine, agent: Agent, gpu: str, ledger: Ledger) -> None:
        self._engine, self._agent, self._gpu, self._ledger = engine, agent, gpu, ledger
        self._used_at_first: int = 0
        self._used_by_one: int = 0

    def run(self) -> None:
        """Each check stands on the first alone: a model that serves."""
        first, *others = self._checks().items()
        if self._ledger.check(self._engine.name, *first):
            for name, look_at in others:
                self._ledger.check(self._engine.name, name, look_at)
        else:
            names = (name for name, _ in others)
            self._ledger.passed_over(self._engine.name, names, f"see {first[0]}")

    def _checks(self) -> Mapping[str, Callable[[], Told]]:
        return {
            "loads on the GPU that it got": self._loads,
            "chats": self._chats,
            "streams": self._streams,
            "the driver sees it there": self._is_seen,
            "estimate and what is used": self._estimate,
            "two share, a third cannot": self._share,
            "memory is back after a stop": self._gives_back,
            "and after kill -9": self._is_killed,
            "and when no model is left": self._leaves,
        }

    def _loads(self) -> Told:
        self._engine.write(self._agent.hub)
        self._used_at_first = self._used(look())
        self._write(self._model("one"))
        self._agent.start()
        self._agent.wait_up()
        engines = wait_for(
            lambda: self._agent.self_view()["engines"], what="versions of the engines", seconds=60
        )
        built_for = [each["id"] for each in engines]
        if not any(name.endswith(_ON_GPU) for name in built_for):
            raise NotChecked(f"the engine here is no build for a GPU ({', '.join(built_for)})")
        entry = self._loaded("one")
        self._agent.post("/api/management/reconcile", {}).raise_for_status()
        machine = self._look()
        entry = self._loaded("one")
        held = [identity_of(gpu) for gpu in machine.told["gpus"] if "one" in gpu["models"]]
        assert held == [self._gpu], f"xgen-model gpus: one holds {held}; {_why(entry)}"
        argv = self._detail("one")["argv"]
        return Told(
            said=f"{entry['backend']} {entry['engine']['version']}, pid {entry['pid']}",
            figures={"backend": entry["backend"], "argv": argv},
        )

    def _chats(self) -> Told:
        answer = self._ask(stream=False)
        assert answer.status_code == 200, answer.text
        text = answer.json()["choices"][0]["message"]["content"]
        assert text, "the answer is empty"
        return Told(said=repr(text[:60]))

    def _streams(self) -> Told:
        answer = self._ask(stream=True)
        lines = [line for line in answer.text.splitlines() if line.startswith("data: ")]
        assert lines[-1:] == ["data: [DONE]"], answer.text[-500:]
        return Told(said=f"{len(lines)} events, the last one [DONE]")

    def _is_seen(self) -> Told:
        found = self._look().of_processes(family(self._pid("one")))
        if not found:
            raise NotChecked("the driver tells no pid of it: it hides them, or this is a container")
        assert [*found] == [self._gpu], f"its processes are on {', '.join(found)}"
        return Told(said=self._gpu, figures={"held_bytes": found[self._gpu]})

    def _estimate(self) -> Told:
        machine = self._look()
        held = machine.of_processes(family(self._pid("one"))).get(self._gpu)
        self._used_by_one = self._used(machine)
        used = held if held is not None else self._used_by_one - self._used_at_first
        estimate = self._detail("one")["memory_on_gpus"].get(self._gpu)
        if estimate is None:
            raise NotChecked("there is no estimate for it")
        total = estimate["total_bytes"]
        ratio = used / total if total else None
        shown = "-" if ratio is None else f"{ratio:.2f}"
        return Told(
            said=f"estimate {_mib(total)}, used {_mib(used)}: ratio {shown}",
            figures={"estimate": estimate, "used_bytes": used, "ratio": ratio},
        )

    def _share(self) -> Told:
        pair = self._model("one"), self._model("two")
        self._write(*pair)
        self._loaded("two")
        more = self._used(self._look()) - self._used_by_one
        self._write(*pair, self._model("three", 0.6))

        def refused() -> Told | None:
            told = self._agent.condition("ManifestValid")
            wrong = told is not None and told["status"] == "False"
            return Told(said=told["message"]) if told is not None and wrong else None

        told = self._ledger.wait(refused, what="three is refused", seconds=20)
        assert "their shares sum up to more than 1" in told.said, told.said
        assert self._agent.model("three") is None
        return Told(said=f"two takes {_mib(more)} more; {told.said}", figures={"more_bytes": more})

    def _gives_back(self) -> Told:
        members = family(self._pid("two"))
        self._write(self._model("one"))
        return self._is_back(members, self._used_by_one)

    def _is_killed(self) -> Told:
        before = self._pid("one")
        members = family(before)
        os.kill(before, signal.SIGKILL)

        def anew() -> Told | None:
            entry = self._entry("one")
            again = entry["state"] == "loaded" and entry["pid"] != before
            return Told(said=f"pid {entry['pid']} serves instead of {before}") if again else None

        seconds = self._engine.load_seconds + _BACK_SECONDS
        told = self._ledger.wait(anew, what="it is loaded anew", seconds=seconds)
        back = self._is_back(members, self._used_by_one)
        return Told(said=f"{told.said}; {back.said}", figures=back.figures)

    def _leaves(self) -> Told:
        members = family(self._pid("one"))
        self._write()
        told = self._is_back(members, self._used_at_first)
        code = self._agent.stop()
        assert code == 0, f"the agent exits with {code}"
        return told

    def _is_back(self, ended: set[int], expected: int) -> Told:
        """None of these is on any GPU, and no more memory is used than before them."""

        def back() -> Told | None:
            machine = self._look()
            used = self._used(machine)
            if machine.of_processes(ended) or used > expected + _SLACK_BYTES:
                return None
            said = f"{_mib(used)} used, {_mib(expected)} before"
            return Told(said=said, figures={"used_bytes": used, "before_bytes": expected})

        what = f"memory of GPU {self._gpu} is back: {_mib(expected)} used"
        return self._ledger.wait(back, what=what, seconds=_BACK_SECONDS)

    def _loaded(self, name: str) -> Entry:
        def serves() -> Told | None:
            entry = self._agent.model(name)
            if entry is None:
                return None
            assert entry["state"] not in ("blocked", "error"), _why(entry)
            return Told(said="loaded") if entry["state"] == "loaded" else None

        self._ledger.wait(serves, what=f"{name} is loaded", seconds=self._engine.load_seconds)
        return self._entry(name)

    def _entry(self, name: str) -> Entry:
        entry = self._agent.model(name)
        assert entry is not None, f"the agent knows no {name}"
        return entry

    def _pid(self, name: str) -> int:
        entry = self._entry(name)
        assert entry["pid"] is not None, f"{name} has no process; {_why(entry)}"
        return int(entry["pid"])

    def _detail(self, name: str) -> Entry:
        answer = self._agent.client.get(f"{self._agent.url}/api/management/models/{name}")
        found: Entry = answer.raise_for_status().json()
        return found

    def _ask(self, *, stream: bool) -> httpx.Response:
        said = [{"role": "user", "content": "Say hello."}]
        body = {"model": "one", "messages": said, "max_tokens": 16, "stream": stream}
        return self._agent.post("/v1/chat/completions", body)

    def _model(self, name: str, share: float = _SHARE) -> str:
        return self._engine.model(name, self._gpu, share)

    def _write(self, *models: str) -> None:
        self._agent.write(manifest(*models, spec=_SPEC))

    def _look(self) -> Machine:
        return look(self._agent.url)

    def _used(self, machine: Machine) -> int:
        used: Any = machine.gpu(self._gpu)["memory_used_bytes"]
        if used is None:
            raise NotChecked(f"the driver does not tell how much of GPU {self._gpu} is used")
        return int(used)


def _why(entry: Entry) -> str:
    return "\n".join([f"{entry['state']}: {entry['reason']}", *entry["last_lines"][-4:]])


def _mib(count: int) -> str:
    return f"{count / _MIB:,.0f} MiB"
