"""The steps of our Dockerfile, run without a container engine: each stage is a folder.

An image that a stage begins with is a tar file of this machine. No layers, no cache of steps.
"""

import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.deploy.chroot import Mount, inside
from tests.deploy.dockerfile import Config, Dockerfile, NotUnderstood, Step, expand

_OF_THE_MACHINE = (Path("/etc/resolv.conf"), Path("/etc/hosts"))


class StepFailed(AssertionError):
    """What a step printed, and which."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A stage that was run: its files and how a container of it is run."""

    root: Path
    config: Config


@dataclass(kw_only=True)
class Build:
    """One run of a builder.

    `images`: tar files by the name that FROM has. `context`: see `context_of`. `secrets`: files
    by id; one that is missing is not mounted. `folder`: for stages and caches.
    """

    file: Dockerfile
    images: Mapping[str, Path]
    context: Path
    arguments: Mapping[str, str]
    secrets: Mapping[str, Path]
    folder: Path
    built: dict[str, Image] = field(default_factory=dict)

    def stage(self, name: str) -> Image:
        """Built once. Raises StepFailed, NotUnderstood."""
        if name not in self.built:
            self.built[name] = self._build(name)
        return self.built[name]

    def _build(self, name: str) -> Image:
        base = self.file.base(name, self.arguments)
        root = self.folder / "stages" / name
        root.parent.mkdir(exist_ok=True)
        config = Config()
        if base in self.file.stages:
            begun = self.stage(base)
            config = begun.config
            _run(["cp", "-a", str(begun.root), str(root)])
        else:
            root.mkdir()
            _run(["tar", "-xf", str(self.images[base]), "-C", str(root), "--exclude=./dev/*"])
        for step in self.file.steps(name, self.arguments, config):
            config = step.config
            self._take(step, root)
        return Image(root=root, config=config)

    def _take(self, step: Step, root: Path) -> None:
        match step.instruction.word:
            case "RUN":
                self._execute(step, root)
            case "COPY":
                self._copy(step, root)
            case "WORKDIR":
                (root / step.config.folder.lstrip("/")).mkdir(parents=True, exist_ok=True)
            case _:
                pass

    def _execute(self, step: Step, root: Path) -> None:
        with ExitStack() as stack:
            mounts = [Mount(source=path, target=str(path)) for path in _OF_THE_MACHINE]
            for flag in step.instruction.flags:
                mounts += self._mounts(flag)
            for mount in mounts:
                stack.enter_context(mount_point(root, mount))
            words = inside(
                root,
                ["/bin/sh", "-c", step.instruction.text],
                env={**step.arguments, **step.config.env},
                user=step.config.user,
                folder=step.config.folder,
                mounts=mounts,
            )
            _run(words)

    def _mounts(self, flag: str) -> Iterator[Mount]:
        """Of one `--mount=…`; none for a secret that was not given."""
        kind, _, text = flag.partition("=")
        options = dict(pair.split("=", 1) for pair in text.split(","))
        if kind != "mount":
            raise NotUnderstood(f"--{flag}")
        target = options.pop("target")
        match options:
            case {"type": "cache", **rest}:
                name = rest.get("id", target).strip("/").replace("/", "-")
                cache = self.folder / "caches" / name
                cache.mkdir(parents=True, exist_ok=True)
                yield Mount(source=cache, target=target, writable=True)
            case {"type": "secret", "id": name}:
                if name in self.secrets:
                    yield Mount(source=self.secrets[name], target=target)
            case {"type": "bind", "source": source, "from": name}:
                yield Mount(source=self.stage(name).root / source.lstrip("/"), target=target)
            case {"type": "bind", "source": source}:
                yield Mount(source=self.context / source, target=target)
            case _:
                raise NotUnderstood(f"--{flag}")

    def _copy(self, step: Step, root: Path) -> None:
        origin = self.context
        for flag in step.instruction.flags:
            kind, _, name = flag.partition("=")
            if kind != "from":
                raise NotUnderstood(f"--{flag}")
            origin = self.stage(name).root
        *sources, target = expand(step.instruction.text, step.arguments).split()
        # An absolute target takes the place of the folder.
        into = root / str(Path(step.config.folder) / target).lstrip("/")
        for each in sources:
            _copy_one(origin / each.lstrip("/"), into, is_folder=target.endswith("/"))


def context_of(repository: Path, folder: Path) -> Path:
    """What a builder is sent of the repository: what .dockerignore takes out of its `*`."""
    first, *others = _patterns(repository / ".dockerignore")
    if first != "*":
        raise NotUnderstood(f".dockerignore: {first}")
    kept = [each.removeprefix("!") for each in others if each.startswith("!")]
    dropped = [each.removeprefix("**/") for each in others if each.startswith("**/")]
    if len(kept) + len(dropped) != len(others):
        raise NotUnderstood(f".dockerignore: {others}")
    for name in kept:
        source, target = repository / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns(*dropped))
        else:
            shutil.copy(source, target)
    return folder


def _patterns(path: Path) -> Iterator[str]:
    for line in path.read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            yield line


def _copy_one(source: Path, into: Path, *, is_folder: bool) -> None:
    if source.is_dir():  # its contents, as a builder does
        into.mkdir(parents=True, exist_ok=True)
        _run(["cp", "-a", f"{source}/.", str(into)])
    elif is_folder:
        into.mkdir(parents=True, exist_ok=True)
        _run(["cp", "-a", str(source), str(into)])
    else:
        raise NotUnderstood(f"COPY of a file to {into}")


@contextmanager
def mount_point(root: Path, mount: Mount) -> Iterator[None]:
    """Something to mount on; what was not there before is gone afterwards."""
    point = root / mount.target.lstrip("/")
    missing = [each for each in (point, *point.parents) if not each.exists()]
    if missing:
        point.parent.mkdir(parents=True, exist_ok=True)
        point.mkdir() if mount.source.is_dir() else point.touch()
    yield
    for each in missing:
        if each.is_dir() and not any(each.iterdir()):
            each.rmdir()
        elif each.is_file():
            each.unlink()


def _run(words: Sequence[str]) -> None:
    done = subprocess.run(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        raise StepFailed(f"{words[-1]}\nexit code {done.returncode}\n{done.stdout[-4000:]}")
