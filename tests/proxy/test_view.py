"""The JSON shapes of design §9."""

import json
from dataclasses import asdict, replace
from typing import Any

import msgspec

from reconciler.condition import Condition, ConditionType, Reason
from reconciler.plan.ids import FilesDigest, ModelName, NodeName, Nonce, SpecHash
from reconciler.plan.phase import State
from reconciler.proxy import view
from reconciler.status import (
    Device,
    Doing,
    DrainingStatus,
    EngineStatus,
    Progress,
    Revision,
    Status,
    TargetStatus,
)
from tests.proxy.builders import KEY, NOW, model, status


def _full_status() -> Status:
    serving = replace(
        model("llm", port=7, aliases=("x",)),
        backend="xllamacpp",
        gpu_ids=("GPU-1",),
        spec_hash=SpecHash("1:ab"),
        digest=FilesDigest("cd"),
        pid=42,
        progress=Progress(
            doing=Doing.FETCH,
            done_bytes=1,
            total_bytes=2,
            bytes_per_second=0.5,
            seconds_left=2.0,
        ),
        target=TargetStatus(spec_hash=SpecHash("1:ef"), state=State.CACHING, reason="new flags"),
        draining=(
            DrainingStatus(
                nonce=Nonce("old"), pid=41, spec_hash=SpecHash("1:cd"), reason="why", since="t"
            ),
        ),
    )
    return replace(
        status(serving, model("a")),
        revision=Revision(applied="r1", attempted="r2"),
        conditions=(
            Condition(
                type=ConditionType.READY,
                status="True",
                reason=Reason.AS_WANTED,
                message="m",
                since="s",
                observed_revision="r2",
            ),
        ),
    )


def _device(vendor: str) -> Device:
    return Device(
        index=0,
        identity="GPU-1",
        uuid="GPU-1",
        pci="0000:01:00.0",
        name="card",
        vendor=vendor,
        gpu_class="nvidia",
        memory_total_bytes=2,
        memory_free_bytes=1,
        utilization=50,
    )


def _seen(body: object) -> Any:
    """As a client of the API sees it."""
    return json.loads(msgspec.json.encode(body))


class _InFlight:
    def of_model(self, model: ModelName) -> int:
        return 3 if model == "llm" else 0

    def in_flight(self, nonce: Nonce) -> int:
        return 2 if nonce == "old" else 0


_in_flight = _InFlight()


def test_a_model_shows_all_that_is_known_of_its_engine() -> None:
    engine = EngineStatus(name="new", version="0.32", installed="0.33", drift="it is newer")
    shown = view.one_model(replace(model("llm"), engine=engine), _in_flight)
    assert shown["engine"] == asdict(engine)
    assert view.one_model(model("llm"), _in_flight)["engine"] is None


def test_a_server_has_the_shape_that_peers_read() -> None:
    server = _seen(view.server(_full_status(), _in_flight, NOW))
    expected = {
        "node": "node-a",
        "pod_name": "pod-a",
        "pod_ip": "10.1.2.3",
        "reachable": True,
        "revision": {"applied": "r1", "attempted": "r2"},
        "gpu": {"type": "cpu", "count": 0, "mode": "node", "devices": []},
        "conditions": [
            {
                "type": "Ready",
                "status": "True",
                "reason": "AsWanted",
                "message": "m",
                "since": "s",
                "observed_revision": "r2",
            }
        ],
    }
    assert server | expected == server


def test_a_model_has_every_field_of_the_contract() -> None:
    server = _seen(view.server(_full_status(), _in_flight, NOW))
    waiting, serving = server["models"]
    assert waiting["name"] == "a"
    assert server["loaded_models"] == [serving]
    expected = {
        "name": "llm",
        "aliases": ["x"],
        "model_type": "llm",
        "backend": "xllamacpp",
        "state": "loaded",
        "reason": "as told",
        "gpu_ids": ["GPU-1"],
        "in_flight": 3,
        "spec_hash": "1:ab",
        "digest": "cd",
        "pid": 42,
        "target": {"spec_hash": "1:ef", "state": "caching", "reason": "new flags", "pid": None},
        "draining": [
            {
                "pid": 41,
                "spec_hash": "1:cd",
                "in_flight": 2,
                "since": "t",
                "reason": "why",
                "loads": False,
            }
        ],
    }
    assert serving | expected == serving
    assert serving["progress"] == {
        "done_bytes": 1,
        "total_bytes": 2,
        "doing": "fetch",
        "bytes_per_second": 0.5,
        "seconds_left": 2.0,
        "silent_seconds": None,
    }


def test_a_backends_key_is_never_shown() -> None:
    shown = msgspec.json.encode(view.server(_full_status(), _in_flight, NOW))
    assert KEY.encode() not in shown


def test_gpus_of_two_vendors_are_mixed() -> None:
    def gpu(*devices: Device) -> Any:
        return _seen(view.server(Status(node=NodeName("n"), devices=devices), _in_flight, NOW))[
            "gpu"
        ]

    one = gpu(_device("nvidia"))
    assert (one["type"], one["count"]) == ("nvidia", 1)
    assert one["devices"] == [
        {
            "index": 0,
            "uuid": "GPU-1",
            "name": "card",
            "memory_total_bytes": 2,
            "memory_free_bytes": 1,
            "utilization": 50,
            "memory_used_bytes": None,
            "pci": "0000:01:00.0",
            "class": "nvidia",
            "architecture": None,
            "problem": None,
        }
    ]
    lost = gpu(replace(_device("nvidia"), problem="lost"))
    assert (lost["type"], lost["count"], lost["devices"][0]["problem"]) == ("cpu", 0, "lost")
    assert gpu(_device("nvidia"), _device("amd"))["type"] == "mixed"
