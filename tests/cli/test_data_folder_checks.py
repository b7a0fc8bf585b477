"""What `doctor` says of a data folder, beside an agent or without one."""

import os
from pathlib import Path

from reconciler.cli.checks.data_folder import data_folder_findings
from reconciler.cli.checks.finding import Finding, Level
from reconciler.cli.without_agent import runs_without_agent


def left_behind(folder: Path) -> list[Finding]:
    return [
        each for each in data_folder_findings(folder, None, "host") if each.subject == "left behind"
    ]


def test_records_that_cannot_be_listed_are_not_taken_for_none(tmp_path: Path) -> None:
    assert left_behind(tmp_path) == []
    spawns = tmp_path / "spawns"
    spawns.touch()

    (finding,) = left_behind(tmp_path)

    assert finding.level is Level.FAIL
    assert finding.said == f"cannot read the records in {spawns}: not a directory"
    assert finding.next == (
        f"make the folder readable for this agent (uid {os.geteuid()}): no agent starts on it "
        "until then"
    )
    (line,) = runs_without_agent(tmp_path)
    assert line.startswith("what runs without an agent is not known: cannot read the records in ")
