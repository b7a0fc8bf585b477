"""Jobs on disk, one JSON file each: an agent that was killed goes on with them."""

from pathlib import Path

import msgspec
import structlog

from reconciler.atomic_file import make_folder, replace_file
from reconciler.errors import Transient
from reconciler.jobs.job import VERSION, Job

_log = structlog.get_logger("xgen.jobs")


class JobStore:
    """The folder is made with the first job."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> tuple[Job, ...]:
        """The oldest first. A file that is no job of this version is left out, and left alone."""
        jobs = []
        for path in sorted(self._folder.glob("*.json")):
            try:
                job = msgspec.json.decode(path.read_bytes(), type=Job)
            except (OSError, msgspec.DecodeError) as exc:
                _log.warning("job is left out", file=str(path), cause=str(exc))
                continue
            if job.version == VERSION and path.stem == job.id:
                jobs.append(job)
        return tuple(sorted(jobs, key=lambda job: job.created_at))

    def save(self, job: Job) -> None:
        """Whole or not at all, after a crash too. Raises Transient."""
        try:
            make_folder(self._folder, mode=0o750)
            content = msgspec.json.format(msgspec.json.encode(job), indent=1) + b"\n"
            replace_file(self._path(job.id), content)
        except OSError as exc:
            raise Transient(f"cannot save job {job.id} in {self._folder}: {exc.strerror}") from exc

    def remove(self, job_id: str) -> None:
        self._path(job_id).unlink(missing_ok=True)

    def _path(self, job_id: str) -> Path:
        return self._folder / f"{job_id}.json"
