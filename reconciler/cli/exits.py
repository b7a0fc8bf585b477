"""How a command ends: the exit codes, and typer's error for bad usage."""

from enum import IntEnum
from typing import cast

import typer


class ExitCode(IntEnum):
    """What a shell or a CI job sees. CHANGES: only of `plan`. INTERRUPTED: by Ctrl-C."""

    OK = 0
    ERROR = 1
    CHANGES = 2
    BAD_USAGE = 64
    INTERRUPTED = 130


# typer works on click or, in newer releases, on a copy of its own, and exports only this child.
UsageError = cast("type[typer.BadParameter]", typer.BadParameter.__base__)
"""Any bad usage: an unknown command, option or value."""
