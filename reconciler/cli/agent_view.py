"""How an agent lives and ends, as it is shown to people: its supervisor, and what it leaves."""

from reconciler.cli.client import Json
from reconciler.plan.ending import OnExit

_SUPERVISED = "a supervisor starts it anew after a crash"


def how_it_ends(server: Json) -> str:
    """In words; empty where an older agent does not tell."""
    agent = server.get("agent")
    if not agent:
        return ""
    leaves = agent.get("on_exit") == OnExit.LEAVE and not agent.get("on_exit_problem")
    fate = "are left running" if leaves else "are stopped"
    if agent.get("on_exit") == OnExit.AUTO:
        fate += ", but for what is suspended,"
    supervised = _SUPERVISED if agent.get("supervision") else "it has no supervisor"
    return f"its backends {fate} when it is told to end; {supervised}"


def why_none_is_left(server: Json) -> str | None:
    """What stands against `--on-exit leave`; None: nothing, or it was not asked for."""
    problem = (server.get("agent") or {}).get("on_exit_problem")
    return f"--on-exit leave cannot work: {problem}" if problem else None


def crashes(server: Json) -> str | None:
    """None: no agent has crashed under this supervisor."""
    supervision = (server.get("agent") or {}).get("supervision") or {}
    if not supervision.get("crash"):
        return None
    count = supervision.get("restarts")
    times = "once" if count == 1 else f"{count} times"
    return f"the agent has crashed {times} and was started anew; last: {supervision['crash']}"
