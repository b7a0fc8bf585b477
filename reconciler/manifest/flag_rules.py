"""What a table of an engine's flags says of each, and the reasons (design §4)."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum


class Why(StrEnum):
    """Why a manifest may not say it, or only where the node's operator allows it."""

    OURS = "the agent sets it itself"
    TYPE = "it follows from the model's `type`"
    DEVICE = "the agent selects the devices; use gpus or gpu_ids"
    NAME = "the backend knows the model by its name only; use name and aliases"
    KEY = "the agent gives each backend a random key"
    LOOPBACK = "backends listen on loopback only, and the agent is their only client"
    LOGS = "the agent keeps the backend's output in a log file of its own"
    HUB = "files come from the hub only, and backends run offline; use source"
    ROUTER = "one backend serves one model; list several under models"
    EXITS = "it prints something and exits"
    SLEEP = "a model that sleeps would count as loaded"
    SEVERAL_NODES = "one model over several nodes is not supported"
    CONFIG = "flags stand in extra_args, not in a file of the node"

    CODE = "it would run code of the manifest's choice on the node"
    FILES = "it would open files of the node to the manifest or to clients"
    CLIENTS = "it would let clients hand the engine more than text and media"
    NETWORK = "it would send data out of the node, or listen there"
    LOGGED = "it would write what users ask into a log that can be read through the agent"
    WEIGHTS = "it would load weights that may hold code, or from elsewhere"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlagRules:
    """One family's flags, by names with underscores; a flag that is nowhere here is unknown.

    `ours`: never the manifest's, with the reason. `asked`: dangerous, with the reason. `free`: all
    others that were looked at. `files`: free as long as their values name the model's own files.
    `texts`: free ones whose value is free text. `values`: the only free values of a flag, and why.
    `keys`: the only free keys of a flag's JSON. `abbreviated`: the engine takes any beginning of a
    flag that is no other's, too.
    """

    ours: Mapping[str, str]
    asked: Mapping[str, str]
    free: frozenset[str]
    files: frozenset[str]
    texts: frozenset[str] = frozenset()
    values: Mapping[str, tuple[frozenset[str], str]] = field(default_factory=dict)
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    abbreviated: bool = False


def table(*rows: tuple[str, str]) -> Mapping[str, str]:
    """Names, parted by blanks, and what holds for all of them."""
    return {flag: reason for flags, reason in rows for flag in flags.split()}


def words(text: str) -> frozenset[str]:
    return frozenset(text.split())
