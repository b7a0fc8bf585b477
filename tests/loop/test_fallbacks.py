"""Which models run on their fallback: tried once, kept for as long as its process lives."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reconciler.apply.backends import BackendView
from reconciler.backend.choice import Refusal
from reconciler.backend.engines import Assessment
from reconciler.loop.fallbacks import Fallbacks
from reconciler.loop.observation import Look
from reconciler.plan.desired import Desired, DesiredModel
from reconciler.plan.fallbacks import fallen_back
from reconciler.plan.gpu_claims import Claim
from reconciler.plan.gpu_roll import Roll
from reconciler.plan.ids import FilesDigest, Instance, ModelName, NodeName, SpecHash
from tests.backend.build import gpu, model, spec
from tests.loop.book_entries import view

NAME = ModelName("gemma")
REFUSED = Assessment(refusal="no vLLM", no_backend=Refusal(reason="no vLLM"))
Views = Mapping[ModelName, tuple[BackendView, ...]]


def wanted(fallback: str = "gguf/org_name", **changes: Any) -> DesiredModel:
    source = model(source="huggingface/org_name")
    return replace(source, fallback=spec(source=fallback), **changes)


def desired(*models: DesiredModel) -> Desired:
    return Desired(node=NodeName("n"), revision="r", models=models)


def running(spec_hash: SpecHash) -> Views:
    instance = Instance(spec_hash=spec_hash, files_digest=FilesDigest("d"))
    return {NAME: (replace(view(), model=NAME, instance=instance),)}


class Node:
    """A node on which `runs` says what can run."""

    def __init__(self) -> None:
        self.builds = ["some"]
        self.fallbacks = Fallbacks(lambda: self.builds)
        self.runs = {"gguf/org_name", "gguf/other"}
        self.busy = False
        self.roll = Roll()
        self.views: Views = {}

    def takes(self, only: DesiredModel) -> str:
        """The source that one tick comes to."""
        manifest = desired(only)
        for _ in range(3):
            settled = self.fallbacks.settle(manifest, self.views)
            assert settled is not None
            (made,) = settled.models
            if not self.fallbacks.learn({NAME: self._look(made)}, self.views, self.roll):
                return made.spec.source
        raise AssertionError("it does not settle")

    def _look(self, made: DesiredModel) -> Look:
        claim = Claim(refusal="taken") if self.busy and made.fallback else Claim()
        can_run = made.spec.source in self.runs
        assessment = Assessment() if can_run else REFUSED
        return Look(desired=made, files=None, assessment=assessment, claim=claim)


def test_the_fallback_is_taken_where_the_source_cannot_run() -> None:
    node = Node()
    assert node.takes(wanted()) == "gguf/org_name"
    node.runs.add("huggingface/org_name")
    assert Node().takes(replace(wanted(), fallback=None)) == "huggingface/org_name"


def test_the_source_is_taken_where_it_can_run() -> None:
    node = Node()
    node.runs.add("huggingface/org_name")
    assert node.takes(wanted()) == "huggingface/org_name"


def test_gpus_of_a_vendor_that_the_node_lacks_are_a_reason_and_busy_ones_are_none() -> None:
    node = Node()
    node.runs.add("huggingface/org_name")
    node.busy = True
    on_cuda = replace(wanted(), spec=spec(source="huggingface/org_name", backend="vllm-cuda"))
    assert node.takes(on_cuda) == "gguf/org_name"
    node.roll = Roll(devices=(gpu(),))
    assert [node.takes(each) for each in (on_cuda, wanted())] == ["huggingface/org_name"] * 2


def test_a_disabled_model_decides_nothing() -> None:
    assert Node().takes(wanted(enabled=False)) == "huggingface/org_name"


def test_where_neither_can_run_it_settles_on_the_fallback() -> None:
    node = Node()
    node.runs.clear()
    assert [node.takes(wanted()) for _ in range(2)] == ["gguf/org_name"] * 2


def test_nothing_new_is_the_very_same_value() -> None:
    node, manifest = Node(), desired(wanted())
    first = node.fallbacks.settle(manifest, {})
    assert node.fallbacks.settle(manifest, {}) is first is manifest
    node.takes(wanted())
    fallen = node.fallbacks.settle(manifest, {})
    assert node.fallbacks.settle(manifest, {}) is fallen is not first


def test_the_fallback_stays_while_its_process_lives_and_the_source_is_tried_after_it() -> None:
    """A GPU that comes later is no reason to restart what serves (R4)."""
    node = Node()
    node.takes(wanted())
    node.runs.add("huggingface/org_name")
    node.roll = Roll(devices=(gpu(),))
    node.views = running(fallen_back(wanted()).spec_hash)
    assert [node.takes(wanted()), node.takes(wanted())] == ["gguf/org_name"] * 2
    node.views = {}
    assert node.takes(wanted()) == "huggingface/org_name"


def test_other_gpus_without_a_process_try_the_source_again() -> None:
    node = Node()
    node.takes(wanted())
    node.runs.add("huggingface/org_name")
    assert node.takes(wanted()) == "gguf/org_name"
    node.roll = Roll(devices=(gpu(),))
    assert node.takes(wanted()) == "huggingface/org_name"


def test_an_adopted_process_keeps_either_choice() -> None:
    """A new agent, with or without vLLM, starts nothing anew."""
    node = Node()
    node.runs.add("huggingface/org_name")
    node.views = running(fallen_back(wanted()).spec_hash)
    assert node.takes(wanted()) == "gguf/org_name"
    without = Node()
    without.views = running(wanted().spec_hash)
    assert without.takes(wanted()) == "huggingface/org_name"
    without.views = {}
    assert without.takes(wanted()) == "gguf/org_name"


def test_an_edit_that_makes_a_source_the_fallback_tries_the_new_source() -> None:
    """What serves has the fallback's very spec; it was no fallback."""
    node = Node()
    node.runs.add("huggingface/org_name")
    old = replace(model(source="gguf/org_name"), spec_hash=fallen_back(wanted()).spec_hash)
    node.views = running(old.spec_hash)
    assert node.takes(old) == "gguf/org_name"
    assert [node.takes(wanted()), node.takes(wanted())] == ["huggingface/org_name"] * 2


def test_an_edit_without_a_restart_leaves_the_fallback_and_one_with_it_tries_anew() -> None:
    node = Node()
    node.takes(wanted())
    node.runs.add("huggingface/org_name")
    node.views = running(fallen_back(wanted()).spec_hash)
    assert node.takes(wanted(priority=3)) == "gguf/org_name"
    assert node.takes(wanted(fallback="gguf/other")) == "huggingface/org_name"


def test_other_engines_are_a_reason_to_try_the_source_again() -> None:
    node = Node()
    assert node.takes(wanted()) == "gguf/org_name"
    node.runs.add("huggingface/org_name")
    assert node.takes(wanted()) == "gguf/org_name"
    node.builds = ["another"]
    assert node.takes(wanted()) == "huggingface/org_name"


def test_other_engines_take_no_fallback_away_that_runs() -> None:
    node = Node()
    assert node.takes(wanted()) == "gguf/org_name"
    node.views = running(fallen_back(wanted()).spec_hash)
    node.runs.add("huggingface/org_name")
    node.builds = ["another"]
    assert node.takes(wanted()) == "gguf/org_name"
