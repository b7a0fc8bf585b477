"""What the cache has done with files by itself, in the past tense, for operators."""

from dataclasses import dataclass

from reconciler.cache.amounts import human


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRotten:
    """A published file is not what was pushed, and was removed. `size_bytes`: as pushed.

    `models`: those of this agent that need it.
    """

    prefix: str
    digest: str
    path: str
    size_bytes: int
    cause: str
    models: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        whom = f" for {', '.join(self.models)}" if self.models else ""
        return f"{self.path} of {self.prefix} is rotten: {self.cause}; it is fetched again{whom}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDoubted:
    """A published file looks changed, and of what was pushed only its size is known.

    `done`: what becomes of it, as a clause. `models`: those of this agent that need it.
    """

    prefix: str
    digest: str
    path: str
    size_bytes: int
    done: str
    models: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        whom = f", for {', '.join(self.models)}" if self.models else ""
        return f"{self.what}; {self.done}{whom}"

    @property
    def what(self) -> str:
        return (
            f"{self.path} of {self.prefix} looks changed since it was fetched, and nobody can tell "
            "whether it is: the hub has no catalog of it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesEvicted:
    """Files that no model needs have gone. `size_bytes`: what the cache is smaller by.

    `last_used`: seconds since 1970. `why`: what the room is for.
    """

    prefix: str
    digest: str
    files: int
    size_bytes: int
    last_used: float
    why: str

    @property
    def reason(self) -> str:
        return (
            f"{self.prefix} of digest {self.digest[:12]} was evicted, {human(self.size_bytes)}: "
            f"no model here needs it, and {self.why}"
        )


Harmed = FileRotten | FileDoubted
News = Harmed | FilesEvicted
