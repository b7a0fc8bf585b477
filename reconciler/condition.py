"""What a condition can be: its types, its reasons, and the fact itself (PURE).

docs/conditions.md says of each reason what it means and what to do; a test compares the two.
"""

from dataclasses import dataclass
from enum import StrEnum


class ConditionType(StrEnum):
    """The first four are of a model, too. They and `SourceReady` are always there; of the others
    those that have something to say."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    DEGRADED = "Degraded"
    SOURCE_READY = "SourceReady"
    MANIFEST_VALID = "ManifestValid"
    MANIFEST_KEPT = "ManifestKept"
    SUSPENDED = "Suspended"
    MODELS_SUSPENDED = "ModelsSuspended"
    CONFIRMATION_NEEDED = "ConfirmationNeeded"
    DRAINING = "Draining"
    PROCESSES_CLEAR = "ProcessesClear"
    DEVICES_KNOWN = "DevicesKnown"
    ENGINES_USABLE = "EnginesUsable"
    CACHE_IN_BUDGET = "CacheInBudget"
    HISTORY_KEPT = "HistoryKept"
    PEERS_FOUND = "PeersFound"
    NODE_NAMES_UNIQUE = "NodeNamesUnique"
    REVISIONS_AGREE = "RevisionsAgree"
    CLUSTER_TOKEN_CURRENT = "ClusterTokenCurrent"


ABNORMAL_IF_TRUE = frozenset(
    {
        ConditionType.RECONCILING,
        ConditionType.STALLED,
        ConditionType.DEGRADED,
        ConditionType.SUSPENDED,
        ConditionType.MODELS_SUSPENDED,
        ConditionType.CONFIRMATION_NEEDED,
        ConditionType.DRAINING,
    }
)
"""Of all others False is what somebody may want to look at."""


class Reason(StrEnum):
    """Why a condition is as it is."""

    # of what is wanted
    AS_WANTED = "AsWanted"
    DISABLED = "Disabled"
    AT_REST = "AtRest"
    CLEAR = "Clear"
    # on the way
    WAITING = "Waiting"
    FETCHING = "Fetching"
    LOADING = "Loading"
    STOPPING = "Stopping"
    RETRYING = "Retrying"
    # not on the way
    BLOCKED = "Blocked"
    HELD = "Held"
    SUSPENDED = "Suspended"
    # at fault
    FAILED = "Failed"
    OLDER_SERVES = "OlderServes"
    REVERTED = "Reverted"
    SOURCE_LOST = "SourceLost"
    TICK_FAILED = "TickFailed"
    LOOP_SILENT = "LoopSilent"
    # of the source and the manifest
    READ = "Read"
    UNREADABLE = "Unreadable"
    NOT_READ_YET = "NotReadYet"
    VALID = "Valid"
    INVALID = "Invalid"
    NOTHING_GOOD_YET = "NothingGoodYet"
    # of the node
    MANIFEST = "Manifest"
    COMMAND = "Command"
    STOP_LIMIT = "StopLimit"
    ENDING = "Ending"
    LEFT_ALONE = "LeftAlone"
    TOLD = "Told"
    NONE_FOR_US = "NoneForUs"
    DRIVER_SILENT = "DriverSilent"
    GPU_LOST = "GpuLost"
    GPU_UNUSABLE = "GpuUnusable"
    CANNOT_BE_USED = "CannotBeUsed"
    TOO_LARGE = "TooLarge"
    NOT_ON_DISK = "NotOnDisk"
    # of the cluster
    FOUND = "Found"
    LOOKUP_FAILED = "LookupFailed"
    SELF_MISSING = "SelfMissing"
    NOT_HEADLESS = "NotHeadless"
    NAME_CLASH = "NameClash"
    REVISIONS_DIFFER = "RevisionsDiffer"
    TOKEN_UNUSABLE = "TokenUnusable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A fact about a node or one of its models, in the manner of Kubernetes conditions.

    `status` is "True", "False" or "Unknown". `since`: RFC 3339, UTC: from when on status and reason
    are these. `observed_revision`: the newest of the manifest that it takes account of.
    """

    type: ConditionType
    status: str
    reason: Reason
    message: str
    since: str
    observed_revision: str | None = None

    @property
    def is_abnormal(self) -> bool:
        return self.status == ("True" if self.type in ABNORMAL_IF_TRUE else "False")
