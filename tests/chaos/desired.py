"""The oracle: the files of the manifest as they are written, and what counts of them (R2).

A file is only spoilt once the agent has said that it took up what stood there before. So `files` is
always what counts, whatever stands on the disk.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.chaos.wishes import Wish
from tests.e2e.manifests import manifest, model

Files = Mapping[str, tuple[Wish, ...]]


class Desired:
    """`past`: all that was ever wished. `spoilt`: files that count as they were. `away`: the whole
    folder is gone for a while."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._aside = folder.with_name("manifests-aside")
        self._marks: dict[str, str] = {}
        self._number = 0
        self.files: dict[str, tuple[Wish, ...]] = {}
        self.past: set[Wish] = set()
        self.spoilt: set[str] = set()
        self.away = False
        folder.mkdir()

    @property
    def wishes(self) -> dict[str, Wish]:
        return {wish.name: wish for wishes in self.files.values() for wish in wishes}

    @property
    def marks(self) -> set[str]:
        """Models of another node: listed as such, they tell which version of each file counts."""
        return {self._marks[name] for name in self.files}

    def write(self, name: str, wishes: Iterable[Wish]) -> None:
        """As an editor saves: a new file, renamed over the old one."""
        self.files[name] = tuple(wishes)
        self.past.update(self.files[name])
        self._replace(name, self._text(name))
        self.spoilt.discard(name)

    def write_torn(self, name: str, wishes: Iterable[Wish], *, cut: float) -> None:
        """In place, in two writes: an agent that looks between them sees half of it."""
        self.files[name] = tuple(wishes)
        self.past.update(self.files[name])
        text = self._text(name)
        at = int(len(text) * cut)
        with (self._folder / name).open("w", encoding="utf-8") as file:
            file.write(text[:at])
            file.flush()
            file.write(text[at:])
        self.spoilt.discard(name)

    def spoil(self, name: str, content: str) -> None:
        self._replace(name, content)
        self.spoilt.add(name)

    def cut(self, name: str, share: float) -> None:
        """Within its last model, where it is no YAML."""
        text = self._text_now(name)
        begin = text.rindex("{name:") + 1
        self.spoil(name, text[: begin + int((len(text) - begin - 3) * share)])

    def clash(self, name: str, other: Wish) -> None:
        """It claims a model of another file."""
        self.spoil(name, _document([*self.files[name], other], "mark-clash"))

    def remove(self, name: str) -> None:
        (self._folder / name).unlink()
        del self.files[name]
        self.spoilt.discard(name)

    def repair(self) -> None:
        """What was spoilt is written anew, as it counts."""
        for name in sorted(self.spoilt):
            self.write(name, self.files[name])

    def take_away(self) -> None:
        self._folder.rename(self._aside)
        self.away = True

    def bring_back(self) -> None:
        self._aside.rename(self._folder)
        self.away = False

    def _text(self, name: str) -> str:
        self._number += 1
        self._marks[name] = f"mark-{self._number}"
        return self._text_now(name)

    def _text_now(self, name: str) -> str:
        return _document(self.files[name], self._marks[name])

    def _replace(self, name: str, content: str) -> None:
        fresh = self._folder / f".{name}.swp"
        fresh.write_text(content, encoding="utf-8")
        fresh.rename(self._folder / name)


def _document(wishes: Iterable[Wish], mark: str) -> str:
    models = (model(mark, nodes="[node-z]"), *(wish.text for wish in wishes))
    return manifest(*models, spec="  stop_limit: none\n")  # who edits here confirms nothing
