"""Random manifests for a machine of four GPUs, one like the one before but for a few models."""

from copy import deepcopy
from dataclasses import dataclass, field
from random import Random
from typing import Any

import msgspec

SOURCES = tuple(f"gguf/org_m{number}" for number in range(30))
PLAIN = "huggingface/org_plain"
"""In a format that nothing on the machine runs."""
NAMES = tuple("abcdef")
Model = dict[str, Any]


@dataclass
class Candidates:
    """`models`: by name, as the manifest has them."""

    random: Random
    models: dict[str, Model] = field(default_factory=dict)
    edits: tuple[Any, ...] = field(default_factory=lambda: EDITS)
    removals: float = 0.2
    _before: dict[str, Model] = field(default_factory=dict)

    def undo(self) -> None:
        """The last one was none that is valid."""
        self.models = self._before

    def unlucky(self) -> frozenset[str]:
        """Whose starts are to fail; as a rule nobody's."""
        return (
            frozenset(self.random.sample(NAMES, 3)) if self.random.random() < 0.1 else frozenset()
        )

    def next(self) -> str:
        """Another manifest: one to three models are changed, added or removed."""
        self._before = deepcopy(self.models)
        for name in self.random.sample(NAMES, self.random.randint(1, 3)):
            if name not in self.models:
                self.models[name] = self._fresh(name)
            elif self.random.random() < self.removals:
                del self.models[name]
            else:
                self._edit(self.models[name])
        return self.text

    @property
    def text(self) -> str:
        suspend = {"suspend": True} if self.random.random() < 0.03 else {}
        document = {
            "apiVersion": "xgen.io/v1alpha1",
            "kind": "ModelManifest",
            "metadata": {"name": "t"},
            "spec": {
                **suspend,
                "stop_limit": "none",
                "allow_empty": True,
                "models": list(self.models.values()),
            },
        }
        return msgspec.json.encode(document).decode()

    def _fresh(self, name: str) -> Model:
        model: Model = {"name": name, "source": self.random.choice((*SOURCES, PLAIN))}
        for _ in range(self.random.randint(0, 3)):
            self._edit(model)
        return model

    def _edit(self, model: Model) -> None:
        key, value = self.random.choice(self.edits)(self.random)
        if key == "gpu_ids":
            model.pop("gpus", None)
        if key == "gpus":
            model.pop("gpu_ids", None)
        if value is None:
            model.pop(key, None)
        else:
            model[key] = value
        if "gpu_memory" in model and model.get("gpus") in (0, 2):
            del model["gpu_memory"]
        if model["source"].startswith("gguf/"):
            model.pop("fallback", None)


EDITS: tuple[Any, ...] = (
    lambda r: ("source", PLAIN if r.random() < 0.1 else r.choice(SOURCES)),
    lambda r: ("gpus", r.choice((None, 0, 1, 1, 2))),
    lambda r: ("gpu_ids", r.choice((None, [0], [1]))),
    lambda r: ("gpu_memory", r.choice((None, 0.4, 0.6))),
    lambda r: ("extra_args", {"ctx_size": r.choice((2048, 4096, 16384, 65536, 131072))}),
    lambda r: (
        "extra_args",
        {"ctx_size": 2048, "no_such_flag": 1} if r.random() < 0.3 else {"ctx_size": 8192},
    ),
    lambda r: ("strategy", r.choice((None, "recreate", "surge", "auto"))),
    lambda r: ("priority", r.choice((None, 1, 5))),
    lambda r: ("enabled", r.choice((None, None, False))),
    lambda r: ("aliases", r.choice((None, [f"x{r.randint(0, 99)}"]))),
    lambda r: ("timeouts", r.choice((None, {"drain": "5s"}))),
    lambda r: ("fallback", {"source": r.choice(SOURCES)}),
    lambda r: ("fallback", None),
    lambda r: ("on_failure", r.choice((None, "keep", "stop"))),
    lambda r: ("skip_memory_check", r.choice((None, True))),
    lambda r: ("nodes", r.choice((None, ["node-a"], ["node-b"]))),
    lambda r: ("env", r.choice((None, {"GGML_LOG_LEVEL": str(r.randint(0, 2))}))),
)

OF_GPUS: tuple[Any, ...] = (
    lambda r: ("source", r.choice(SOURCES)),
    lambda r: ("gpus", r.choice((1, 1, 1, 2))),
    lambda r: ("gpu_ids", [r.randint(0, 3)] if r.random() < 0.3 else None),
    lambda r: ("gpu_memory", r.choice((None, 0.4, 0.6))),
    lambda r: ("extra_args", {"ctx_size": r.choice((2048, 4096, 16384))}),
    lambda r: ("strategy", r.choice((None, "recreate", "surge", "auto"))),
    lambda r: ("priority", r.choice((None, 1, 5))),
    lambda r: ("enabled", r.choice((None, None, False))),
)
"""Nearly all of them want GPUs, and few are refused."""
