"""`gpus`, and what `doctor` says of GPUs, on machines that their libraries describe."""

import json
import os
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from reconciler.apply.gpu_numbers import GpuNumbers
from reconciler.cli.checks.finding import Level
from reconciler.cli.checks.gpu import gpu_findings
from reconciler.plan.gpu_roll import enrolled, numbered
from tests.cli.command import on_a_terminal, xgen_model
from tests.observe.gpu_libraries import GpuLibraries, records
from tests.plan.gpu import answers, nvidia

GIB = 2**30
CARDS = (
    {"uuid": "GPU-far", "pci": "0000:17:00.0", "total": 80 * GIB, "used": 0, "util": 3},
    {"uuid": "GPU-near", "pci": "0000:03:00.0", "total": 80 * GIB, "used": GIB},
    {"error": 15},
)
APU = {"pci": "0000:c5:00.0", "gfx": "0x1151", "total": GIB, "gtt": 64 * GIB, "hip": 0}


@pytest.fixture
def env(libraries: GpuLibraries, tmp_path: Path) -> dict[str, str]:
    """Three of NVIDIA, one of them lost; an APU of AMD. We are on the near one."""
    processes = records("process", {"on": "GPU-near", "pid": os.getpid(), "memory": GIB})
    nvidia, amd = records("gpu", *CARDS) + processes, records("gpu", APU)
    return libraries.machine(tmp_path, nvidia=nvidia, amd=amd)


@pytest.fixture
def agent() -> Iterator[str]:
    """What an agent says whose models hold a GPU, an APU, and one that is gone."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            held = {"chat": ["GPU-near"], "small": ["C5:00.0"], "lost": ["GPU-gone"], "cpu": []}
            models = [{"name": name, "gpu_ids": ids} for name, ids in held.items()]
            body = json.dumps({"models": models, "gpu": {"mode": "node"}}).encode()
            self.send_response(200)
            self.send_header("X-Served-By", "node-a/-")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def told(result: Any) -> dict[str, Any]:
    assert result.returncode == 0
    value: dict[str, Any] = json.loads(result.stdout)
    return value


def test_the_devices_of_both_vendors_stand_in_pci_order_with_the_models_on_them(
    env: dict[str, str], agent: str
) -> None:
    result = xgen_model("gpus", "--server", agent, "--output", "json", env=env)

    said = told(result)
    gpus = [(gpu["index"], gpu["pci"], gpu["class"], gpu["models"]) for gpu in said["gpus"]]
    assert gpus[:3] == [
        (0, "0000:03:00.0", "nvidia", ["chat"]),
        (1, "0000:17:00.0", "nvidia", []),
        (2, "0000:c5:00.0", "amd-rdna", ["small"]),
    ]
    (process,) = said["gpus"][0]["processes"]
    assert (process["pid"], process["memory_bytes"]) == (os.getpid(), GIB)
    assert said["gpus"][2]["memory_total_bytes"] == 64 * GIB
    assert [step["step"] for step in said["chain"]] == ["amdsmi", "sysfs", "nvml", "torch", "cpu"]
    (lost,) = said["gpus"][3:]
    assert (lost["index"], lost["unusable"]) == (None, "lost: GPU is lost")
    assert "lost holds GPU-gone" in result.stderr


def test_without_an_agent_masks_and_apus_are_explained(env: dict[str, str]) -> None:
    env |= {"CUDA_VISIBLE_DEVICES": "1"}

    result = xgen_model("gpus", env=env)

    assert (result.returncode, result.stderr) == (0, "")
    assert "0000:03:00.0 is not used: hidden by CUDA_VISIBLE_DEVICES=1" in result.stdout
    assert "0000:c5:00.0 is not used: an APU" in result.stdout
    assert str(os.getpid()) in result.stdout


def test_an_agent_that_does_not_answer_costs_only_its_part_and_a_narrow_terminal_columns(
    env: dict[str, str],
) -> None:
    code, shown = on_a_terminal("gpus", "--server", "127.0.0.1:9", columns=60, env=env)

    assert code == 0
    assert "is not known" in shown
    assert "MODELS" in shown
    assert "UUID" not in shown


def test_a_machine_without_gpus_says_so_and_why() -> None:
    result = xgen_model("gpus")

    assert result.returncode == 0
    assert "models run on the CPU" in result.stdout
    assert "libnvidia-ml.so.1" in result.stdout


def gpu_checks(env: dict[str, str], tmp_path: Path) -> tuple[int, list[dict[str, str]]]:
    result = xgen_model("doctor", "--output", "json", "--data-dir", tmp_path / "data", env=env)
    checks = json.loads(result.stdout)["checks"]
    return result.returncode, [check for check in checks if check["subject"] == "gpu"]


def test_in_a_container_the_gpus_of_others_are_not_shown_as_missing(
    libraries: GpuLibraries, tmp_path: Path
) -> None:
    env = libraries.machine(tmp_path, nvidia=records("gpu", *CARDS[:2]))
    env |= {"NVIDIA_VISIBLE_DEVICES": "GPU-far", "XGEN_GPU_MODE": "plugin"}

    said = told(xgen_model("gpus", "--output", "json", env=env))
    _, checks = gpu_checks(env, tmp_path)
    node = told(xgen_model("gpus", "--gpu-mode", "node", "--output", "json", env=env))

    assert (said["mode"], node["mode"]) == ("plugin", "node")
    assert [(gpu["index"], gpu["uuid"]) for gpu in said["gpus"]] == [
        (None, "GPU-near"),
        (0, "GPU-far"),
    ]
    assert [check["level"] for check in checks if check["message"].startswith("mode plugin")] == [
        "ok"
    ]


def test_a_container_without_a_gift_is_told_how_to_get_one(
    libraries: GpuLibraries, tmp_path: Path
) -> None:
    """An image that says `all` is no gift, whatever its runtime then shows."""
    env = libraries.machine(tmp_path, nvidia=records("gpu", *CARDS[:2]))
    env |= {"NVIDIA_VISIBLE_DEVICES": "all", "XGEN_GPU_MODE": "plugin"}

    shown = " ".join(xgen_model("gpus", env=env).stdout.split())
    _, checks = gpu_checks(env, tmp_path)

    assert "no device plugin gave this container a GPU" in shown
    assert "set NVIDIA_VISIBLE_DEVICES=void" in shown
    warned = [check["message"] for check in checks if check["level"] == "warn"]
    assert len([each for each in warned if "nvidia.com/gpu or amd.com/gpu" in each]) == 1
    assert not [check for check in checks if check["level"] == "fail"]


def test_doctor_says_what_to_do_about_a_driver_that_does_not_answer(
    libraries: GpuLibraries, tmp_path: Path
) -> None:
    nvidia, amd = records("sys", {"nvmlInitWithFlags": 18}), records("sys", {"amdsmi_init": 10})

    code, checks = gpu_checks(libraries.machine(tmp_path, nvidia=nvidia, amd=amd), tmp_path)

    failed = {check["message"].partition(":")[0]: check for check in checks if check["next"]}
    assert code == 1
    assert set(failed) == {"amdsmi", "nvml", "no GPU can be used"}
    assert {check["level"] for check in failed.values()} == {"fail"}
    assert "reboot" in failed["nvml"]["next"]
    assert "video and render" in failed["amdsmi"]["next"]


def test_doctor_tells_of_every_step_and_of_what_is_lost(
    env: dict[str, str], tmp_path: Path
) -> None:
    _, checks = gpu_checks(env, tmp_path)

    levels = [(check["level"], check["message"].partition(":")[0]) for check in checks]
    assert [level for level in levels if level[0] == "ok"] == [
        ("ok", "amdsmi"),
        ("ok", "nvml"),
        ("ok", "cpu"),
        ("ok", "mode node"),
    ]
    lost = [check for check in checks if "lost: GPU is lost" in check["message"]]
    assert {check["level"] for check in lost} == {"warn"}
    assert not [check for check in checks if check["level"] == "fail"]


def test_one_of_amd_s_that_is_lost_beside_a_sound_one_is_shown_with_its_reason(
    libraries: GpuLibraries, tmp_path: Path
) -> None:
    sound = {"uuid": "GPU-a1", "pci": "0000:0d:00.0", "hip": 1, "total": GIB, "used": 0}
    env = libraries.machine(tmp_path, amd=records("gpu", {"error": 43}, sound))

    said = " ".join(xgen_model("gpus", env=env).stdout.split())
    code, checks = gpu_checks(env, tmp_path)

    lost = "amd:0 is not used: lost: amdsmi does not tell where it is: "
    assert lost in said
    (warned,) = [check for check in checks if check["message"].startswith(lost)]
    assert (code, warned["level"]) == (0, "warn")
    assert "reset" in warned["next"]


def test_a_card_without_its_driver_is_a_warning_with_the_next_step(tmp_path: Path) -> None:
    """Nothing falls to the CPU in silence (ollama#3647)."""
    card = tmp_path / "sys/bus/pci/devices/0000:17:00.0"
    card.mkdir(parents=True)
    (card / "vendor").write_text("0x10de\n", encoding="ascii")
    (card / "class").write_text("0x030200\n", encoding="ascii")

    (warning,) = [found for found in gpu_findings(tmp_path) if found.level is Level.WARN]

    assert "0000:17:00.0" in warning.said
    assert "install NVIDIA's driver" in (warning.next or "")


@pytest.mark.parametrize(
    ("driver", "masks", "shown", "step"),
    [
        (records("gpu", {"error": 15}), {}, "nvidia:0 is not used: lost: GPU is lost", "a reset"),
        (
            records("gpu", CARDS[0] | {"mig": 1}),
            {},
            "0000:17:00.0 is not used: it is in MIG mode and has no instances",
            "nvidia-smi mig -cgi",
        ),
        (
            records("gpu", CARDS[0]),
            {"CUDA_VISIBLE_DEVICES": "GPU-typo"},
            "CUDA_VISIBLE_DEVICES=GPU-typo: GPU-typo is the name of no GPU, or of several, so all",
            "another mask",
        ),
        (records("sys", {"nvmlInitWithFlags": 18}), {}, "nvml -", "reboot"),
        (records("sys", {"nvmlInitWithFlags": 4}), {}, "nvml -", "/dev/nvidia*"),
    ],
)
def test_where_the_agent_refuses_models_nobody_says_that_they_run_on_the_cpu(
    libraries: GpuLibraries,
    tmp_path: Path,
    driver: str,
    masks: dict[str, str],
    shown: str,
    step: str,
) -> None:
    env = libraries.machine(tmp_path, nvidia=driver) | masks

    said = " ".join(xgen_model("gpus", env=env).stdout.split())
    code, checks = gpu_checks(env, tmp_path)

    verdict = "no GPU can be used: models are refused, but for those that say gpus: 0"
    assert shown in said
    assert verdict in said
    assert [check["level"] for check in checks if check["message"] == verdict] == ["fail"]
    assert code == 1
    assert step in " ".join(check["next"] or "" for check in checks)
    assert "run on the CPU" not in " ".join([said, *(check["message"] for check in checks)])


def test_the_numbers_are_those_of_the_agent_and_a_hidden_instance_is_told_by_its_name(
    libraries: GpuLibraries, tmp_path: Path
) -> None:
    known = enrolled(None, answers(nvidia(3, uuid="GPU-near"), nvidia(1)), {})
    GpuNumbers(tmp_path / "gpus.json").write(numbered(known))
    slices = [
        {"of": "GPU-far", "slot": slot, "uuid": f"MIG-{slot}", "total": GIB, "used": 0}
        for slot in (0, 1)
    ]
    cards = records("gpu", CARDS[0] | {"mig": 1}, CARDS[1]) + records("mig", *slices)
    env = libraries.machine(tmp_path, nvidia=cards) | {"CUDA_VISIBLE_DEVICES": "0"}

    gpus = told(xgen_model("gpus", "--data-dir", tmp_path, "--output", "json", env=env))["gpus"]
    shown = xgen_model("gpus", "--data-dir", tmp_path, env=env).stdout

    assert [(gpu["index"], gpu["uuid"]) for gpu in gpus] == [
        (0, "GPU-n1"),
        (1, "GPU-near"),
        (None, "MIG-0"),
        (None, "MIG-1"),
    ]
    for slot in (0, 1):
        assert f"0000:17:00.0 (MIG-{slot}) is not used: hidden by CUDA_VISIBLE_DEVICES=0" in shown
    assert "0000:01:00.0 is not used: lost" in shown
