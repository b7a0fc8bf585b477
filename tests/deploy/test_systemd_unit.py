"""The units as systemd reads them, the install script as shellcheck does."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deploy.helm import ROOT

SYSTEMD = ROOT / "deploy" / "systemd"
UNITS = ("xgen-model.service", "xgen-model-stop.service")
EXPOSURE_AT_MOST = 30
"""Tenths, of `systemd-analyze security`: what engines and GPUs need keeps it from less."""


def analyze(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["systemd-analyze", *map(str, arguments)], capture_output=True, text=True, check=False
    )


def test_systemd_has_nothing_to_say_of_the_units(tmp_path: Path) -> None:
    for unit in UNITS:
        text = (SYSTEMD / unit).read_text(encoding="utf-8")
        (tmp_path / unit).write_text(text.replace("/usr/local/bin/xgen-model", sys.executable))
    done = analyze("verify", "--recursive-errors=yes", *(tmp_path / unit for unit in UNITS))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("unit", UNITS)
def test_the_units_are_as_closed_as_gpus_allow(unit: str) -> None:
    threshold = f"--threshold={EXPOSURE_AT_MOST}"
    done = analyze("security", "--offline=true", threshold, SYSTEMD / unit)
    assert done.returncode == 0, done.stdout


def test_the_two_units_are_closed_alike() -> None:
    def hardening(unit: str) -> set[str]:
        text = (SYSTEMD / unit).read_text(encoding="utf-8")
        words = (
            "Protect|Restrict|SystemCall|NoNew|Capability|Lock|Keyring|ReadWrite|UMask|User|Group"
        )
        return set(re.findall(rf"^(?:{words}).*$", text, re.MULTILINE))

    assert hardening(UNITS[0]) == hardening(UNITS[1])


def test_every_setting_of_the_environment_file_is_one_of_the_agent() -> None:
    text = (SYSTEMD / "xgen-model.env").read_text(encoding="utf-8")
    named = set(re.findall(r"^#?(XGEN_[A-Z_]+)=", text, re.MULTILINE))
    xgen_model = Path(sys.executable).with_name("xgen-model")
    shown = subprocess.run(
        [str(xgen_model), "run", "--help"],
        capture_output=True,
        text=True,
        check=True,
        env={"COLUMNS": "400", "PATH": "/usr/bin"},
    )
    assert named - set(re.findall(r"XGEN_[A-Z_]+", shown.stdout)) == set()
    assert len(named) > 10


def test_shellcheck_has_nothing_to_say() -> None:
    shellcheck = Path(sys.executable).with_name("shellcheck")
    scripts = [SYSTEMD / "install.sh", ROOT / "tests" / "deploy" / "machine.sh"]
    done = subprocess.run(
        [str(shellcheck), *map(str, scripts)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
