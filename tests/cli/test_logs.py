"""`logs` without an agent; with one: tests/e2e/test_commands.py."""

import json
from pathlib import Path

from tests.cli.command import xgen_model


def test_json_is_an_object_a_line(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "chat.log"
    log.parent.mkdir()
    log.write_text('loading\n\nsays "hello"\n')
    result = xgen_model("logs", "chat", "--output", "json", "--data-dir", tmp_path)
    assert [json.loads(line) for line in result.stdout.splitlines()] == [
        {"model": "chat", "line": "loading"},
        {"model": "chat", "line": ""},
        {"model": "chat", "line": 'says "hello"'},
    ]
    assert result.returncode == 0
