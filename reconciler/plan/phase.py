"""The states of a model on a node, and the one table of how they may follow each other.

pending ─▶ caching ─▶ loading ─▶ loaded ─▶ unloading ─▶ stopped
   error: failed, will be tried again      blocked: failed, waits for a change
   disabled: `enabled: false`
"""

from enum import StrEnum


class State(StrEnum):
    PENDING = "pending"
    CACHING = "caching"
    LOADING = "loading"
    LOADED = "loaded"
    UNLOADING = "unloading"
    STOPPED = "stopped"
    ERROR = "error"
    BLOCKED = "blocked"
    DISABLED = "disabled"
