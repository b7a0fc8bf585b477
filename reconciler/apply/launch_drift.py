"""Starts as they are compared: how what an earlier agent has started differs from what this one
would start in its place, as after an upgrade (R4: that is shown, and restarts nothing)."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from reconciler.backend.environment import inherited
from reconciler.backend.launch import Launch
from reconciler.masking import MASK, is_secret_name, masked_argv
from reconciler.observe.processes import environment_of
from reconciler.plan.desired import SecretRef

Own = Mapping[str, str | SecretRef]
"""The `env` of a spec."""

_VERSION = "2"
_HEX_DIGITS = 16
_LONGEST = 80


def launch_hash(launch: Launch, own: Own) -> str:
    """Of the command and the variables: not of its port, its key, the values of secrets, and what
    it inherits from whoever starts the agent."""
    argv = [argument.replace(str(launch.port), MASK) for argument in shown_argv(launch, own)]
    told = msgspec.json.encode([launch.backend, argv, sorted(_settled(launch, own).items())])
    return f"{_VERSION}:{hashlib.sha256(told).hexdigest()[:_HEX_DIGITS]}"


def shown_argv(launch: Launch, own: Own) -> tuple[str, ...]:
    """Without the key, and without the values of variables that are secret."""
    secrets = [value for name, value in launch.env.items() if _is_secret(name, own)]
    return masked_argv(launch.argv, [launch.api_key, *secrets])


def launch_drift(
    argv: tuple[str, ...], recorded: str | None, pid: int, now: Launch, own: Own
) -> str | None:
    """How a start by now differs, as a clause; None: it does not.

    `argv` and `recorded`: those of the start, `recorded` its hash. `pid`: runs since then. `now`:
    with the same port. Reads /proc.
    """
    hashed = launch_hash(now, own)
    if recorded == hashed:
        return None
    was, by_now = Counter(_words(argv)), Counter(_words(shown_argv(now, own)))
    news = [*(by_now - was).elements(), *_variables(recorded, pid, now, own)]
    gone = [f"no {words}" for words in (was - by_now).elements()]
    if news or gone:
        return ", ".join([*news, *gone])
    comparable = recorded is not None and recorded.startswith(f"{_VERSION}:")
    return "other variables" if comparable else None


def _variables(recorded: str | None, pid: int, now: Launch, own: Own) -> Iterable[str]:
    """Those that it has not, or with another value; an engine's own script may have set more."""
    if recorded is None or not recorded.startswith(f"{_VERSION}:"):
        return
    has = environment_of(pid)
    for name, value in sorted(_settled(now, own).items()) if has else ():
        if has.get(name) is None or (value != MASK and has[name] != value):
            yield f"{name}={value}"[:_LONGEST]


def _settled(launch: Launch, own: Own) -> dict[str, str]:
    """What does not differ by who starts the agent, and when; secrets by name."""
    outside = inherited(launch.env)
    return {
        name: MASK if _is_secret(name, own) or value == launch.api_key else value
        for name, value in launch.env.items()
        if name not in outside or name in own
    }


def _is_secret(name: str, own: Own) -> bool:
    return is_secret_name(name) or isinstance(own.get(name), SecretRef)


def _words(argv: Iterable[str]) -> Iterable[str]:
    """Each flag with its values, and before them the command."""
    words: list[str] = []
    for argument in argv:
        if words and argument.startswith("-"):
            yield " ".join(words)[:_LONGEST]
            words = []
        words.append(argument)
    if words:
        yield " ".join(words)[:_LONGEST]
