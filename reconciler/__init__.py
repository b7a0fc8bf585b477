"""xgen-model: a declarative reconciler for LLM serving.

One agent a node reads a manifest, compares it with what runs, and closes the gap.
Imports between the parts go down only; `pyproject.toml` holds the contract that CI checks.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    __version__: str
else:

    def __getattr__(name: str) -> str:
        """`__version__` when somebody asks: to look it up takes a tenth of a short command."""
        if name != "__version__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.metadata import version

        return version("xgen-model")
