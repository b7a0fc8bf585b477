"""What a command is not given, it takes from the agent that runs."""

from pathlib import Path

from reconciler.cli.git_option import GitOptions
from reconciler.cli.running_settings import RunningSettings
from reconciler.node.announcement import words_of
from reconciler.settings import Settings
from reconciler.source.git_access import GitAccess

AGENT = Settings(
    manifest="git+https://h/r.git",
    data_dir=Path("/d"),
    models_dir=Path("/m"),
    git=GitAccess(token_file=Path("/t"), timeout_seconds=7.5, max_bytes=3 << 20),
)


def test_the_flags_of_git_are_the_agents_where_none_are_given() -> None:
    agent = RunningSettings(pid=1, words=words_of(AGENT))
    assert agent.filled(GitOptions()).access(None, {}) == AGENT.git
    given = GitOptions(git_token_file=Path("/u"), git_max_mib=1, git_timeout=2.0)
    access = agent.filled(given).access(None, {})
    assert (access.token_file, access.max_bytes) == (Path("/u"), 1 << 20)
    assert access.timeout_seconds == 2.0


def test_without_an_agent_the_defaults_count() -> None:
    assert RunningSettings().filled(GitOptions()).access(None, {}) == GitAccess()
