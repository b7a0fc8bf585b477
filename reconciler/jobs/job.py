"""One import as a job, and the states that it goes through (PURE).

    pending ──▶ downloading ──▶ uploading ──▶ completed
       │  └──────────────────────────────────────┘ (the hub has it already)
       └──────────────┴──────────────┴─────▶ error, cancelled

After a restart of the agent, what had not ended is pending again. Asked for once more, what had
ended is pending again, too.
"""

import hashlib
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from reconciler.plan.desired import Format
from reconciler.plan.repository import Repository, prefix_of

VERSION = 1


class JobState(StrEnum):
    PENDING = "pending"
    DOWNLOADING = "downloading"
    UPLOADING = "uploading"
    COMPLETED = "completed"
    ERROR = "error"
    CANCELLED = "cancelled"


ENDED = frozenset({JobState.COMPLETED, JobState.ERROR, JobState.CANCELLED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What somebody wants to have in the hub. `file`: one GGUF of several.

    `refresh`: compare with Hugging Face although the hub has it.
    """

    repository: Repository
    file: str | None = None
    format: Format = Format.AUTO
    refresh: bool = False

    @property
    def prefix(self) -> str:
        return prefix_of(self.repository, file=self.file, format=self.format)

    @property
    def id(self) -> str:
        """The same for the same repository, revision, file and format: whoever asks again joins."""
        words = (str(self.repository), self.file or "", self.prefix)
        return hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """As it is stored and told. Times: RFC 3339, UTC.

    `done_bytes` of `total_bytes`: of the step that the state names. `bytes_per_second`: lately;
    None where that is not known. `error`: why, in the states error and cancelled. `commit`,
    `digest`: what the hub has then; `was_there`: it had that before.
    """

    version: int = VERSION
    id: str
    repository: str
    revision: str | None
    file: str | None
    format: str
    refresh: bool
    prefix: str
    state: JobState
    created_at: str
    ended_at: str | None = None
    done_bytes: int = 0
    total_bytes: int = 0
    bytes_per_second: int | None = None
    error: str | None = None
    commit: str | None = None
    digest: str | None = None
    was_there: bool = False

    @property
    def has_ended(self) -> bool:
        return self.state in ENDED

    @property
    def source(self) -> str:
        """As a person writes it: org/name[@revision]."""
        return str(self.ask.repository)

    @property
    def ask(self) -> Ask:
        return Ask(
            repository=Repository(name=self.repository, revision=self.revision),
            file=self.file,
            format=Format(self.format),
            refresh=self.refresh,
        )


def new_job(ask: Ask, *, now: str) -> Job:
    return Job(
        id=ask.id,
        repository=ask.repository.name,
        revision=ask.repository.revision,
        file=ask.file,
        format=ask.format.value,
        refresh=ask.refresh,
        prefix=ask.prefix,
        state=JobState.PENDING,
        created_at=now,
    )
