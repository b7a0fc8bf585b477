"""An exit of a backend, in the past tense, with what an operator needs to see of it."""

from dataclasses import dataclass

from reconciler.apply.held import BackendView, Held
from reconciler.apply.leader import ExitStatus
from reconciler.apply.logs import tail, write_end
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


def exit_of(held: Held, view: BackendView, now: float) -> BackendExited:
    """Of a backend of which nobody is left. `now`: on the agent's clock. Reads its log, and notes
    there how it ended."""
    status = held.kin.leader.status if held.kin.leader else ExitStatus()
    during = "stop" if held.asked else "run" if view.was_loaded else "load"
    uptime = now - view.started_at
    reason = explain(status, during, uptime)
    last_lines = tail(view.log_path, LAST_LINES, from_offset=held.kin.record.log_offset)
    write_end(view.log_path, f"pid {view.pid} of {view.model}: {reason}")
    return BackendExited(
        model=view.model,
        nonce=view.nonce,
        pid=view.pid,
        instance=view.instance,
        during=during,
        code=status.code,
        signal=status.signal,
        uptime_seconds=uptime,
        loaded_seconds=now - view.loaded_at if view.loaded_at is not None else 0.0,
        last_lines=last_lines,
        reason=reason,
        at=now,
    )
