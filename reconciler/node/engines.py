"""The engines of one agent, as they are made, and how they are looked for."""

import sys
from collections.abc import Callable
from functools import cache

from reconciler.backend.discovery import Discovery
from reconciler.backend.engines import Engines
from reconciler.backend.inventory import Inventory
from reconciler.observe.host_memory import read_physical
from reconciler.settings import Settings


def look_at_engines(settings: Settings) -> Callable[[], Inventory]:
    @cache
    def found() -> Discovery:
        # Here, in the thread that asks: it is some thirty modules, and what an earlier agent has
        # started serves before.
        from reconciler.backend.builds import discovery

        return discovery(
            llama_server=settings.llama_server,
            vllm=settings.vllm,
            llama_cpp_python=settings.llama_cpp_python,
            search_path=settings.environment.get("PATH", ""),
            python=sys.executable,
            engines=settings.engines,
        )

    return lambda: found().look()


def make_engines(settings: Settings) -> Engines:
    """Of which nothing is known yet."""
    return Engines(
        Inventory(),
        shared_cache=str(settings.data_dir / "engines"),
        machine_bytes=read_physical(),
        permissions=settings.permissions,
    )
