"""A machine whose GPUs a library in the driver's place describes, and models that take much."""

from collections.abc import Callable
from typing import Any

from tests.e2e.agent import Agent, llama_server_stand_in
from tests.e2e.manifests import manifest, model
from tests.gguf_file import header
from tests.observe.gpu_libraries import GpuLibraries, records

GIB = 2**30
KEYS = {
    "general.architecture": "llama",
    "llama.context_length": 4096,
    "llama.embedding_length": 4096,
    "llama.block_count": 32,
    "llama.attention.head_count": 32,
    "llama.attention.head_count_kv": 8,
}
"""As of Llama 3 8B: a token takes 128 KiB of cache."""
PREFIX = "gguf/large_cache"
LISTINGS = {
    "nvidia": "  CUDA0: NVIDIA H100 80GB HBM3 (81079 MiB, 80456 MiB free)",
    "amd": "  ROCm0: AMD Instinct MI300X (81920 MiB, 81300 MiB free)",
}
_SILENT = {"nvidia": {"nvmlInitWithFlags": 9}, "amd": {"amdsmi_init": 34}}


class Machine:
    """What the library tells may change; each survey reads it anew. `vendor`: whose it is."""

    def __init__(self, agent: Agent, libraries: GpuLibraries, vendor: str = "nvidia") -> None:
        self._agent, self._libraries, self._vendor = agent, libraries, vendor
        agent.model_file(PREFIX).write_bytes(header(KEYS))
        llama_server_stand_in(agent.root, LISTINGS[vendor])

    def runs(self, *models: str) -> Agent:
        """The agent, up with these."""
        self._agent.write(manifest(*models))
        self._agent.start()
        self._agent.wait_up()
        return self._agent

    def tells(self, *devices: dict[str, object], processes: list[dict[str, object]]) -> None:
        lines = "".join(
            records(str(each["kind"]), {key: value for key, value in each.items() if key != "kind"})
            for each in devices
        )
        text = lines + records("process", *processes)
        self._agent.environment |= self._libraries.machine(self._agent.root, **{self._vendor: text})

    def falls_silent(self) -> None:
        self.tells({"kind": "sys", **_SILENT[self._vendor]}, processes=[])

    def free_bytes(self) -> list[int]:
        """As the agent knows it."""
        devices = self._agent.self_view()["gpu"]["devices"]
        return [each["memory_free_bytes"] for each in devices]

    def holds(self, used: int, **memory: tuple[int, int]) -> None:
        """One GPU of 80 GiB: what is used of it, and each process's pid and GiB."""
        whole = card(used=used * GIB) | ({"hip": 0} if self._vendor == "amd" else {})
        on = whole["pci"] if self._vendor == "amd" else whole["uuid"]
        processes: list[dict[str, object]] = [
            {"on": on, "pid": pid, "memory": size * GIB} for pid, size in memory.values()
        ]
        self.tells(whole, processes=processes)


def card(**more: object) -> dict[str, object]:
    whole: dict[str, object] = {"uuid": "GPU-0", "pci": "0000:01:00.0", "total": 80 * GIB}
    return {"kind": "gpu", **whole, "used": 0, **more}


def large(name: str, gib: int, **fields: str) -> str:
    """A model whose cache takes so much."""
    asks = {"extra_args": f"{{ctx_size: {gib * 8192}}}", "gpu_ids": "[0]", **fields}
    return model(name, source=PREFIX, backend="auto", **asks)


def says(*texts: str, state: str | None = None) -> Callable[[dict[str, Any]], bool]:
    return lambda entry: (
        state in (None, entry["state"]) and all(text in entry["reason"] for text in texts)
    )
