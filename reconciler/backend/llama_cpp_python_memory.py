"""What llama-cpp-python's server needs of memory: what llama.cpp does, and Python (PURE).

Measured with 0.3.36 and Gemma 3 270M: 133 MiB beside the weights and the cache. Its cache is that
of the whole context in every layer, also where a model looks back at a window only.
"""

from dataclasses import replace

from reconciler.backend import llama_memory
from reconciler.backend.loading import Loading
from reconciler.plan.memory import HOST, Needs

PYTHON_BYTES = 50 << 20


def needs(loading: Loading) -> Needs:
    of_llama = llama_memory.needs(loading)
    on_host = of_llama[HOST]
    more = replace(on_host, overhead_bytes=on_host.overhead_bytes + PYTHON_BYTES)
    return {**of_llama, HOST: more}
