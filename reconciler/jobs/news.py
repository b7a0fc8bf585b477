"""What has become of an import, in the past tense, for operators. Each is told once."""

from dataclasses import dataclass

from reconciler.jobs.job import Job, JobState


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportStarted:
    """Its turn has come; after a restart of the agent, once more."""

    job: Job

    @property
    def reason(self) -> str:
        return f"{self.job.source} is imported to {self.job.prefix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCompleted:
    """The hub has it. `seconds`: since its start."""

    job: Job
    seconds: float

    @property
    def reason(self) -> str:
        had = "had" if self.job.was_there else "has"
        return f"the hub {had} {self.job.source} at {self.job.prefix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFailed:
    """`during`: the state that it was in. What was downloaded stays, for the next try."""

    job: Job
    during: JobState
    seconds: float

    @property
    def reason(self) -> str:
        return self.job.error or f"cannot import {self.job.source}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCancelled:
    """What was downloaded is gone. `seconds` None: its turn had not come."""

    job: Job
    during: JobState
    seconds: float | None

    @property
    def reason(self) -> str:
        return f"{self.job.source} is not imported: somebody cancelled it"


News = ImportStarted | ImportCompleted | ImportFailed | ImportCancelled
