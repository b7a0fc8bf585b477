"""What llama-cpp-python's server needs of memory: what llama.cpp does, and Python (PURE)."""

from dataclasses import replace

from reconciler.backend import llama_memory
from reconciler.backend.loading import Loading
from reconciler.plan.memory import HOST, Needs

PYTHON_BYTES = 60 << 20


def needs(loading: Loading) -> Needs:
    of_llama = llama_memory.needs(loading)
    on_host = of_llama[HOST]
    more = replace(on_host, overhead_bytes=on_host.overhead_bytes + PYTHON_BYTES)
    return {**of_llama, HOST: more}
