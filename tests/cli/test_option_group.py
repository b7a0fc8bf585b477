"""Commands get the flags that they have in common as one value."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from typer.testing import CliRunner

from reconciler.cli.option_group import with_groups


@dataclass(frozen=True, kw_only=True)
class Group:
    token: Annotated[Path | None, typer.Option("--token", envvar="TOKEN_OF_THE_TEST")] = None
    limit: Annotated[float, typer.Option("--limit", min=1.0)] = 60.0


NO_GROUP = Group()


@with_groups
def command(name: str, group: Group = NO_GROUP, loud: bool = False) -> int:
    """Says what it was given."""
    typer.echo(f"{name} {group.token} {group.limit} {loud}")
    return 0


def told(*words: str, **env: str) -> str:
    app = typer.Typer()
    app.command()(command)
    return CliRunner().invoke(app, words, env=env).output.strip()


def test_a_group_has_flags_variables_and_defaults_of_its_own() -> None:
    assert told("a") == "a None 60.0 False"
    assert told("a", "--limit", "2", "--loud", TOKEN_OF_THE_TEST="/t") == "a /t 2.0 True"


def test_its_flags_are_judged_and_told_of_like_others() -> None:
    assert "greater than or equal to 1" in told("a", "--limit", "0.5")
    assert "--token" in (shown := told("--help"))
    assert "Says what it was given." in shown
    assert "--group" not in shown
