"""Reads what all spawns of a model print, each from its own file, as one text.

Who speaks is clear from the lines of ours: each file begins with one, and where an older spawn goes
on after a newer one has said something, one names its file.
"""

import asyncio
from pathlib import Path

from reconciler.apply.log_reader import LogReader, Secrets
from reconciler.apply.logs import HEADER_PREFIX
from reconciler.apply.spawn_logs import logs_of
from reconciler.plan.ids import ModelName


class Logs:
    """The logs of a folder. `secrets`: what is masked, asked for at each read."""

    def __init__(self, folder: Path, secrets: Secrets) -> None:
        self._folder = folder
        self._secrets = secrets

    def open(self, model: ModelName) -> "ModelLog":
        """One reader's place; of a model that has no log yet, it reads as empty."""
        return ModelLog(self._folder, model, self._secrets)


class ModelLog:
    """`last` first, then `more` again and again."""

    def __init__(self, folder: Path, model: ModelName, secrets: Secrets) -> None:
        self._folder = folder
        self._model = model
        self._secrets = secrets
        self._readers: dict[Path, LogReader] = {}
        self._speaker: Path | None = None

    async def last(self, lines: int) -> bytes:
        """The last lines, the oldest spawn's first."""
        text = b""
        for path in reversed(await self._paths()):
            self._readers[path] = reader = LogReader(path, self._secrets)
            text = await reader.last(lines - text.count(b"\n")) + text
            self._speaker = self._speaker or path
        return text

    async def more(self) -> bytes:
        """The whole lines that came since, or nothing."""
        text = b""
        paths = await self._paths()
        self._readers = {path: each for path, each in self._readers.items() if path in paths}
        for path in paths:
            reader = self._readers.get(path)
            begins = reader is None
            if reader is None:
                self._readers[path] = reader = LogReader(path, self._secrets)
            fresh = await reader.more()
            if fresh and path != self._speaker and not begins:
                text += f"{HEADER_PREFIX}{path.name} goes on:\n".encode()
            if fresh:
                text, self._speaker = text + fresh, path
        return text

    async def _paths(self) -> tuple[Path, ...]:
        return await asyncio.to_thread(logs_of, self._folder, self._model)
