"""What a shell offers on TAB beside commands and flags."""

import os
from pathlib import Path

from reconciler.errors import XgenError


def complete_model(incomplete: str) -> list[str]:
    """The models of the agent that the environment or the usual data folder names."""
    from reconciler.cli.client import find_agent
    from reconciler.cli.options import data_dir

    folder = os.environ.get("XGEN_DATA_DIR")
    try:
        agent = find_agent(
            os.environ.get("XGEN_SERVER"), data_dir(Path(folder) if folder else None)
        )
        servers = agent.servers()["servers"]
    except XgenError:
        return []
    names = {str(model["name"]) for view in servers for model in view.get("models", ())}
    return sorted(name for name in names if name.startswith(incomplete))
