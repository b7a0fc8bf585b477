"""An exit of a backend, in the past tense, with what an operator needs to see of it."""

from dataclasses import dataclass

from reconciler.apply.leader import ExitStatus
from reconciler.plan.ids import Instance, ModelName, Nonce

LAST_LINES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendExited:
    """`during`: "load", "run", or "stop" when we asked for it.

    `code` or `signal` ("SIGKILL"), neither where nobody can say. `last_lines`: what this start
    printed last. `at`: on the agent's monotonic clock.
    """

    model: ModelName
    nonce: Nonce
    pid: int
    instance: Instance
    during: str
    code: int | None
    signal: str | None
    uptime_seconds: float
    loaded_seconds: float
    last_lines: tuple[str, ...]
    reason: str
    at: float


def explain(status: ExitStatus, during: str, uptime_seconds: float) -> str:
    """One sentence. A clean exit that nobody asked for is a failure, too."""
    after = f"{uptime_seconds:.1f} s after its start"
    if status == ExitStatus() and during != "stop":
        return f"ended {after}; how, nobody can say: an agent before this one had started it"
    match during:
        case "stop":
            return f"stopped: {status}"
        case "load":
            when = f"during the load, {after}"
        case _:
            when = after
    if status.signal == "SIGKILL":
        return f"{status} {when}, not by this agent: out of memory, or somebody's kill -9"
    if status.signal == "SIGILL":
        return f"{status} {when}: this build does not run on this CPU"
    if status.code == 0:
        # vLLM ends so when its EngineCore has died (vllm#19849): its last lines tell of it.
        return f"{status} {when}, as if it was told to, but not by this agent"
    return f"{status} {when}"
