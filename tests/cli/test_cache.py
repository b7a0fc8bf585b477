"""`xgen-model cache …` as a shell runs it, on folders that an agent has filled and left."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reconciler.cache.amounts import human
from reconciler.cache.budget import Budget
from reconciler.cache.journal import this_boot
from reconciler.cache.model_cache import ModelCache
from reconciler.cache.partial import name_of
from reconciler.cache.pin_board import Owner
from reconciler.cache.pins import pins_of
from reconciler.cache.record import load_record, save_record
from reconciler.hub.directory import DirectoryStore
from reconciler.source.last_good import LastGood
from tests.cache.specs import put, spec
from tests.cli.command import on_a_terminal, xgen_model
from tests.cli.test_hub import model as weights
from tests.e2e.manifests import manifest, model

pytestmark = pytest.mark.slow

MIB = 2**20


class Node:
    """The folders of an agent that has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.models = folder / "models"
        self.data.mkdir()
        (self.data / "node.json").write_text(json.dumps({"node": "node-a"}))
        (folder / "hub").mkdir()

    def cache(self, node: str = "node-a", budget: int | None = None) -> ModelCache:
        cache = ModelCache(
            self.models,
            DirectoryStore(self.folder / "hub"),
            owner=Owner(node=node, data_dir=str(self.data)),
            budget=Budget(size_bytes=budget) if budget else None,
        )
        cache.open()
        return cache

    def hold(self, name: str, *files: str) -> str:
        """A MiB a file, in the hub and in the cache."""
        for file in files or ("x.gguf",):
            put(self.folder / "hub", f"gguf/{name}/{file}", os.urandom(MIB))
            self.cache().fetch(spec(f"gguf/{name}", file=file))
        return f"gguf/{name}"

    def pin(self, cache: ModelCache, **models: str) -> None:
        needs = [(name, cache.needed(spec(source))) for name, source in models.items()]
        cache.keeper.pin(pins_of(needs))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return xgen_model("cache", *words, "--data-dir", self.data, "--models-dir", self.models)

    def told(self, *words: str, code: int = 0) -> dict[str, Any]:
        result = self.run(*words, "--output", "json")
        assert result.returncode == code, result.stderr
        told = json.loads(result.stdout)
        assert isinstance(told, dict)
        return told

    def prefixes(self) -> list[str]:
        return [each["prefix"] for each in self.told("list")["revisions"]]

    def file(self, source: str) -> Path:
        (path,) = (self.models / ".rev" / source).glob("*/x.gguf")
        return path


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_list_says_what_is_there_and_who_needs_it(node: Node) -> None:
    a, b = node.hold("o_a"), node.hold("o_b")
    cache = node.cache(budget=5 * MIB)
    node.pin(cache, chat=a)

    told = node.told("list")

    assert (told["api"], told["budget_bytes"]) == (1, 5 * MIB)
    assert 2 * MIB <= told["used_bytes"] < 3 * MIB
    first, second = told["revisions"]
    assert (first["prefix"], first["pinned_by"]) == (a, ["chat"])
    assert (first["files"], first["size_bytes"], first["shared_bytes"]) == (1, MIB, 0)
    assert (first["state"], first["verified"], first["linked"]) == ("whole", "size", True)
    assert (second["prefix"], second["pinned_by"]) == (b, [])
    assert node.told("list", b)["revisions"] == [second]
    code, text = on_a_terminal(
        *("cache", "list", "--data-dir", node.data, "--models-dir", node.models), columns=80
    )
    assert code == 0
    assert "chat" in text
    assert "of 5.0 MiB used" in text


def test_list_says_which_models_are_of_another_agent(node: Node) -> None:
    a = node.hold("o_a")
    node.pin(node.cache(), chat=a)
    node.pin(node.cache(node="node-b"), chat=a, f30=a)

    (row,) = node.told("list")["revisions"]

    where = f"on node-b in {node.data}"
    assert row["pinned_by"] == ["chat", f"chat {where}", f"f30 {where}"]
    refused = node.run("gc", "--budget", "100KiB")
    for said in ("chat", f"chat {where}", f"f30 {where}"):
        assert f"{said} (1.0 MiB)" in refused.stderr


def test_two_revisions_share_a_file_and_say_so(node: Node) -> None:
    source = node.hold("o_a", "x.gguf", "y.gguf")
    put(node.folder / "hub", f"{source}/y.gguf", os.urandom(MIB))
    node.cache().refresh(spec(source, file="x.gguf"))

    rows = node.told("list")["revisions"]

    assert sorted((each["size_bytes"], each["shared_bytes"]) for each in rows) == [
        (MIB, 0),
        (MIB, MIB),
        (MIB, MIB),
    ]


def test_verify_reads_everything_and_names_the_damage(node: Node, tmp_path: Path) -> None:
    """ollama#17520 (scenario 30); what was only touched is right."""
    source = "huggingface/o_a"
    push = ("hub", "push", weights(tmp_path), source, "--hub", tmp_path / "hub")
    assert xgen_model(*push).returncode == 0
    root = Path(node.cache().fetch(spec(source)).root)
    path = root / "model-00001-of-00001.safetensors"
    os.utime(path, (0, 0))
    assert node.told("list")["revisions"][0]["state"] == "changed"

    told = node.told("verify")

    assert (told["ok"], told["files"], told["by"]["sha256"]) == (True, 2, 2)
    assert node.told("list")["revisions"][0]["verified"] == "sha256"
    before = path.stat()
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))  # as rot does it
    assert node.cache().lookup(spec(source)) is not None

    result = node.run("verify", source)

    assert result.returncode == 1
    assert f"{source}/{path.name}: its SHA256 is " in result.stderr
    whole = before.st_size + (root / "config.json").stat().st_size
    size = f"{human(before.st_size)} of {human(whole)}"
    assert result.stdout.startswith(f"1 of 2 files damaged, {size}; an agent")
    assert [each["path"] for each in node.told("verify", code=1)["bad"]] == [path.name]
    cache = node.cache()
    assert cache.lookup(spec(source)) is None  # marked: an agent mends it
    cache.fetch(spec(source))
    assert node.told("verify")["ok"]


def test_verify_says_what_is_missing_and_where_only_sizes_are_known(node: Node) -> None:
    source, other = node.hold("o_a"), node.hold("o_b")
    assert "of 2 only the size is known" in node.run("verify").stdout
    node.file(source).unlink()

    assert node.told("verify", code=1)["bad"][0]["cause"] == "it is missing"
    assert node.told("verify", other)["ok"]
    result = node.run("verify", "gguf/o_x")
    assert result.returncode == 1
    assert "error: cannot find gguf/o_x" in result.stderr
    assert "nearest: " in result.stderr


def test_gc_keeps_to_the_agents_budget(node: Node) -> None:
    old, recent, pinned = node.hold("o_a"), node.hold("o_b"), node.hold("o_c")
    cache = node.cache(budget=int(2.5 * MIB))
    node.pin(cache, m=pinned, r=recent, o=old)
    node.pin(cache, m=pinned, r=recent)
    node.pin(cache, m=pinned)

    planned = node.told("gc", "--dry-run")

    assert [each["prefix"] for each in planned["removed"]] == [old]
    assert node.prefixes() == [old, recent, pinned]
    told = node.told("gc")
    assert told["removed"] == planned["removed"]
    assert (told["freed_bytes"], told["fits"]) == (MIB, True)
    assert node.prefixes() == [recent, pinned]
    assert node.told("gc")["removed"] == []


def test_gc_all_leaves_what_any_agent_needs(node: Node) -> None:
    """kubeai#406, gpustack#2061 (scenarios 34, 35): bytes go, and only those that nobody uses."""
    mine, theirs, nobodys = node.hold("o_a"), node.hold("o_b"), node.hold("o_c")
    node.pin(node.cache(), m=mine)
    node.pin(node.cache(node="node-b"), t=theirs)
    put(node.models, ".partial/of-a-dead-process")

    told = node.told("gc", "--all")

    assert [each["prefix"] for each in told["removed"]] == [nobodys]
    assert node.prefixes() == [mine, theirs]
    assert not os.path.lexists(node.models / nobodys)
    assert not (node.models / ".partial/of-a-dead-process").exists()


def left_over(node: Node, source: str) -> Path:
    """What a killed fetch of `source` has left: a partial file with its journal, and a record."""
    node.hold(source.removeprefix("gguf/"))
    (record_path,) = (node.models / ".rev" / source).glob("*.json")
    record = load_record(record_path)
    assert record is not None
    (item,) = record.objects
    save_record(replace(record, present=frozenset()), record_path)
    partial = node.models / ".partial" / name_of(item)
    node.file(source).rename(partial)
    header = {"journal": 2, "key": item.key, "version": item.version, "size": item.size_bytes,
              "part": MIB, "boot": this_boot()}  # fmt: skip
    partial.with_name(f"{partial.name}.journal").write_text(json.dumps(header) + "\n")
    return partial


def test_gc_counts_and_names_what_a_cut_off_download_has_left(node: Node) -> None:
    node.pin(node.cache())
    partial = left_over(node, "gguf/o_a")
    used = node.told("list")["used_bytes"]

    planned = node.told("gc", "--all", "--dry-run")
    text = node.run("gc", "--all", "--dry-run").stdout
    assert partial.exists()
    told = node.told("gc", "--all")

    assert not partial.exists()
    (cut_off,) = told["cut_off"]
    assert cut_off["object"].endswith("gguf/o_a/x.gguf")
    assert cut_off["size_bytes"] >= MIB
    assert (planned["cut_off"], planned["freed_bytes"]) == (told["cut_off"], told["freed_bytes"])
    assert MIB <= told["freed_bytes"] <= used - told["used_bytes"]
    assert node.told("list")["used_bytes"] == told["used_bytes"]
    assert "would remove 1.0 MiB of " in text
    assert "gguf/o_a/x.gguf: its download was cut off" in text


def test_gc_leaves_what_a_model_s_download_goes_on_from(node: Node) -> None:
    """Its agent was killed: it needs its files for a week."""
    partial = left_over(node, "gguf/o_a")
    node.pin(node.cache(), m="gguf/o_a")

    told = node.told("gc", "--all")

    assert (told["cut_off"], told["freed_bytes"]) == ([], 0)
    assert partial.exists()
    assert node.prefixes() == ["gguf/o_a"]


def test_gc_leaves_what_the_hub_does_not_have_and_says_so(node: Node) -> None:
    put(node.models, "gguf/o_a/notes.txt", b"mine")
    put(node.models, "gguf/o_a/x.gguf", b"older")
    node.hold("o_a")
    node.pin(node.cache())

    result = node.run("gc", "--all")

    assert result.returncode == 0
    assert "of an older installation that the hub does not have; remove it" in result.stderr
    (row,) = node.told("list")["revisions"]
    assert (row["state"], row["files"], row["kept_bytes"] > 0) == ("kept", 0, True)
    assert node.told("verify")["ok"]


def test_gc_says_when_models_need_more_than_the_budget(node: Node) -> None:
    node.pin(node.cache(), chat=node.hold("o_a"))

    result = node.run("gc", "--budget", "100KiB")

    assert result.returncode == 1
    assert "cannot make" in result.stderr
    assert "pinned by chat (1.0 MiB)" in result.stderr
    assert node.told("gc", "--budget", "100KiB", code=1)["fits"] is False


def test_gc_names_its_own_flag_for_a_budget_that_is_none(node: Node) -> None:
    node.pin(node.cache())

    result = node.run("gc", "--budget", "abc")

    absent = xgen_model("cache", "gc", "--budget", "abc", "--models-dir", "/nonexistent/models")

    for each in (result, absent):
        assert each.returncode == 64
        assert "Invalid value for --budget: 'abc'" in each.stderr


def test_gc_reads_the_last_manifest_where_no_agent_said_what_it_needs(node: Node) -> None:
    """As after an upgrade; a model that is disabled keeps its files."""
    a, b, c = node.hold("o_a"), node.hold("o_b"), node.hold("o_c")
    text = manifest(model("a", source=a), model("b", source=b, enabled="false"))
    LastGood(node.data / "last-good").save({"models.yaml": text.encode()}, "r1")

    told = node.told("gc", "--all")

    assert [each["prefix"] for each in told["removed"]] == [c]
    assert [each["pinned_by"] for each in node.told("list")["revisions"]] == [["a"], ["b"]]


def test_gc_removes_nothing_where_nobody_knows_what_is_needed(node: Node) -> None:
    source = node.hold("o_a")

    result = node.run("gc", "--all")

    assert result.returncode == 1
    assert "nothing says which models need it" in result.stderr
    assert node.prefixes() == [source]


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("gc",), 64, "the agent has no budget"),
        (("gc", "--budget", "0"), 64, "more than nothing"),
        (("gc", "--budget", "120%"), 64, "at most 100 %"),
        (("gc", "--budget", "much"), 64, "200GiB, 500GB or 80%"),
    ],
)
def test_bad_usage_is_said(node: Node, words: tuple[str, ...], code: int, said: str) -> None:
    node.pin(node.cache(), m=node.hold("o_a"))
    result = node.run(*words)
    assert (result.returncode, said in result.stderr) == (code, True), result.stderr


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    result = xgen_model("cache", "list", "--data-dir", tmp_path / "none")
    assert result.returncode == 1
    assert "error: cannot use models folder" in result.stderr
