"""xgen-model: a declarative reconciler for LLM serving.

One agent a node reads a manifest, compares it with what runs, and closes the gap.
Imports between the parts go down only; `pyproject.toml` holds the contract that CI checks.
"""

from importlib.metadata import version

__version__ = version("xgen-model")
