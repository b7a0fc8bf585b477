"""Our Dockerfile, read as a builder reads it: what each stage is told to do, and how it is run.

Only what our file uses is known; anything else is refused, so that no step is passed over unseen.
"""

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

_WORDS = (
    *("ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN"),
    *("STOPSIGNAL", "USER", "WORKDIR"),
)
_PLAIN = re.compile(r"\$\{(\w+)\}")
_FLAG = re.compile(r"--(\S+)\s+")


class NotUnderstood(Exception):
    """Something that this reader does not know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruction:
    """One of them. `flags`: without their dashes. `text`: the rest, lines joined."""

    word: str
    flags: tuple[str, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """From one FROM to the next. `base`: an image or a stage, variables and all."""

    name: str
    base: str
    instructions: tuple[Instruction, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """How a container of it is run. `user`: as the file says it."""

    env: Mapping[str, str] = field(default_factory=dict)
    user: str = "0"
    folder: str = "/"
    entrypoint: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    stop_signal: str = "SIGTERM"
    health: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An instruction of a stage, with what is known when it is reached.

    `arguments`: the stage's ARGs, with their values. `config`: after it.
    """

    instruction: Instruction
    arguments: Mapping[str, str]
    config: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Dockerfile:
    """`arguments`: those before the first FROM, with their defaults."""

    arguments: Mapping[str, str]
    stages: Mapping[str, Stage]

    def base(self, stage: str, given: Mapping[str, str]) -> str:
        """The image or the stage that it begins with, under these build arguments."""
        return expand(self.stages[stage].base, {**self.arguments, **given})

    def steps(self, stage: str, given: Mapping[str, str], config: Config) -> Iterator[Step]:
        """What the stage does. `config`: of what it begins with."""
        arguments: dict[str, str] = {}
        for instruction in self.stages[stage].instructions:
            if instruction.word == "ARG":
                name, _, default = instruction.text.partition("=")
                found = given.get(name, default or self.arguments.get(name, ""))
                arguments[name] = found
            config = _after(instruction, config, arguments)
            yield Step(instruction=instruction, arguments=dict(arguments), config=config)

    def config(self, stage: str, given: Mapping[str, str]) -> Config:
        """Of a container of it, but for what an image from elsewhere says."""
        base = self.base(stage, given)
        config = self.config(base, given) if base in self.stages else Config()
        for step in self.steps(stage, given, config):
            config = step.config
        return config


def parse(text: str) -> Dockerfile:
    """Read it whole. Raises NotUnderstood."""
    arguments: dict[str, str] = {}
    stages: dict[str, Stage] = {}
    for each in _instructions(text):
        if each.word == "FROM":
            base, word, name = each.text.split()
            if word != "AS" or each.flags:
                raise NotUnderstood(f"FROM {each.text}")
            stages[name] = Stage(name=name, base=base, instructions=())
        elif stages:
            last = next(reversed(stages.values()))
            stages[last.name] = replace(last, instructions=(*last.instructions, each))
        elif each.word == "ARG":
            name, _, default = each.text.partition("=")
            arguments[name] = default
        else:
            raise NotUnderstood(f"{each.word} before FROM")
    return Dockerfile(arguments=arguments, stages=stages)


def expand(text: str, values: Mapping[str, str]) -> str:
    """With `${NAME}` replaced. Raises NotUnderstood for any other use of a dollar."""
    replaced = _PLAIN.sub(lambda found: values.get(found[1], ""), text)
    if "$" in _PLAIN.sub("", text):
        raise NotUnderstood(text)
    return replaced


def _instructions(text: str) -> Iterator[Instruction]:
    kept = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    for line in "\n".join(kept).replace("\\\n", " ").splitlines():
        if line.strip():
            yield _instruction(line.strip())


def _instruction(line: str) -> Instruction:
    word, _, rest = line.partition(" ")
    if word not in _WORDS:
        raise NotUnderstood(line)
    rest, flags = rest.strip(), []
    while found := _FLAG.match(rest):
        flags.append(found[1])
        rest = rest[found.end() :]
    return Instruction(word=word, flags=tuple(flags), text=rest)


def _after(instruction: Instruction, config: Config, arguments: Mapping[str, str]) -> Config:
    text = instruction.text
    values = {**arguments, **config.env}
    match instruction.word:
        case "ENV":
            return replace(config, env={**config.env, **_pairs(text, values)})
        case "LABEL":
            return replace(config, labels={**config.labels, **_pairs(text, values)})
        case "USER":
            return replace(config, user=text)
        case "WORKDIR":
            return replace(config, folder=text)
        case "ENTRYPOINT":
            return replace(config, entrypoint=_words(text), command=())
        case "CMD":
            return replace(config, command=_words(text))
        case "STOPSIGNAL":
            return replace(config, stop_signal=text)
        case "HEALTHCHECK":
            return replace(config, health=_words(text.removeprefix("CMD").strip()))
        case _:
            return config


def _pairs(text: str, values: Mapping[str, str]) -> dict[str, str]:
    pairs = (word.partition("=") for word in shlex.split(text))
    return {name: expand(value, values) for name, _, value in pairs}


def _words(text: str) -> tuple[str, ...]:
    """Of the form without a shell. Raises NotUnderstood for the other one."""
    try:
        words = json.loads(text)
    except ValueError as exc:
        raise NotUnderstood(text) from exc
    return tuple(words)
