"""Imports from Hugging Face: whole, once, then out of the hub, and each refusal explained."""

from pathlib import Path

import pytest

from reconciler.errors import Rejected, Transient
from reconciler.hub.catalog import Upstream
from tests.fake_hf_hub import FakeHub, Repo
from tests.hub.hubs import Hub
from tests.hub.importing import (
    CHOSEN,
    MODEL,
    TOKEN,
    Importer,
    Steps,
    folder_hub,
    hub,
    importer,
    servers,
    upstream,
)

__all__ = ["folder_hub", "hub", "importer", "servers", "upstream"]


def test_a_repository_is_in_the_hub_with_where_it_came_from(
    upstream: FakeHub, hub: Hub, tmp_path: Path
) -> None:
    importer = Importer(upstream=upstream, hub=hub, folder=tmp_path / "imports")
    steps = Steps()

    imported = importer("org/m", steps)

    assert (imported.prefix, imported.was_there) == ("huggingface/org_m", False)
    files = hub.plain("huggingface/org_m")
    assert {path: files[path] for path in CHOSEN} == CHOSEN
    assert not {"pytorch_model.bin", "onnx/model.onnx"} & set(files)
    catalog = importer.catalog("huggingface/org_m")
    assert catalog.digest == imported.digest
    assert catalog.licence == "apache-2.0"
    assert catalog.upstream == Upstream(repository="org/m", revision="a" * 40)
    assert steps.downloads[-1] == (imported.size_bytes, imported.size_bytes)
    assert max(done for done, _ in steps.downloads) == imported.size_bytes
    assert importer.left == []


def test_what_the_hub_has_is_asked_of_nobody(importer: Importer, tmp_path: Path) -> None:
    """gpustack#2519, #2566: a cached model cannot be deployed offline."""
    first = importer("org/m")
    importer.upstream.requests.clear()
    second_node = Importer(upstream=importer.upstream, hub=importer.hub, folder=tmp_path / "second")

    second = second_node("org/m")

    assert (second.was_there, second.digest, second.commit) == (True, first.digest, "a" * 40)
    assert importer.upstream.requests == []


def test_a_refresh_asks_and_fetches_only_another_commit(importer: Importer) -> None:
    first = importer("org/m")
    importer.upstream.requests.clear()
    assert importer("org/m", refresh=True).was_there
    assert importer.upstream.files_asked() == []
    changed = {**MODEL, "config.json": b'{"architectures": ["Y"]}'}
    importer.upstream.repos["org/m"] = Repo(files=changed, commit="b" * 40)

    second = importer("org/m", refresh=True)

    assert (second.commit, second.was_there) == ("b" * 40, False)
    assert second.digest != first.digest


@pytest.mark.parametrize(
    ("revision", "prefix"),
    [("v1", "huggingface/org_m@v1"), ("refs/pr/1", "huggingface/org_m@refs~pr~1")],
)
def test_a_revision_has_a_prefix_of_its_own(importer: Importer, revision: str, prefix: str) -> None:
    assert importer(f"org/m@{revision}").prefix == prefix
    assert importer.catalog(prefix).upstream == Upstream(repository="org/m", revision="a" * 40)


def test_one_gguf_is_fetched_and_the_next_one_joins_it(importer: Importer) -> None:
    with pytest.raises(Transient, match=r"it holds 2 GGUF models; name one with `file:`"):
        importer("org/m-GGUF")
    with pytest.raises(Rejected, match=r"cannot import org/m-GGUF: `file:` must name a .gguf"):
        importer("org/m-GGUF", file="m")

    importer("org/m-GGUF", file="m-Q4.gguf")
    assert sorted(importer.upstream.files_asked()) == ["m-Q4.gguf", "mmproj-F16.gguf"]
    importer("org/m-GGUF", file="m-Q8.gguf")

    catalog = importer.catalog("gguf/org_m-GGUF")
    assert {file.path for file in catalog.files} == {"m-Q4.gguf", "m-Q8.gguf", "mmproj-F16.gguf"}
    assert catalog.licence == "mit"


def test_a_file_that_is_not_there_is_named_with_the_nearest(importer: Importer) -> None:
    with pytest.raises(
        Transient, match=r"cannot import org/m-GGUF: .*no m-Q5.gguf; nearest: m-Q\d.gguf"
    ):
        importer("org/m-GGUF", file="m-Q5.gguf")


@pytest.mark.parametrize(
    ("repository", "said"),
    [
        ("org/none", r"has no such repository; if it is private, give this node a token \(HF_TOK"),
        ("org/m@v9", r"cannot import org/m@v9: it has no revision v9 at http://127"),
        ("org/gated", r"it is gated: ask for access at http://127.*/org/gated; then give .*HF_TOK"),
    ],
)
def test_each_refusal_says_what_to_do(importer: Importer, repository: str, said: str) -> None:
    with pytest.raises(Transient, match=said):
        importer(repository)
    assert importer.left == []


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, r"http://127.* asks for a token, and this node has none \(HF_TOKEN, or a file"),
        (403, r"refuses it, status 403.*; this node has no token \(HF_TOKEN"),
        (429, r"asks for fewer requests, status 429; with a token it allows more"),
        (500, r"answers with status 500"),
    ],
)
def test_each_answer_that_is_none_says_what_to_do(
    importer: Importer, status: int, said: str
) -> None:
    code = "" if status != 401 else "Nothing"
    importer.upstream.repos["org/m"] = Repo(files={}, refused=(status, code))
    if status == 401:
        importer.upstream.error_message = "Invalid credentials in Authorization header"
    with pytest.raises(Transient, match=said):
        importer("org/m")


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, r"does not take this node's token \(HF_TOKEN, or a file"),
        (403, r"refuses it, status 403.*; may this node's token read it\?"),
    ],
)
@pytest.mark.parametrize("way", ["HF_TOKEN", "HF_HOME"])
def test_a_refusal_speaks_of_the_token_that_was_sent(
    importer: Importer, tmp_path: Path, way: str, status: int, said: str
) -> None:
    (tmp_path / "token").write_text("hf_wrong", encoding="utf-8")
    importer.environment = {way: "hf_wrong" if way == "HF_TOKEN" else str(tmp_path)}
    importer.upstream.repos["org/m"] = Repo(files={}, refused=(status, "Nothing"))
    importer.upstream.error_message = "Invalid credentials in Authorization header"
    with pytest.raises(Transient, match=said):
        importer("org/m")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "cannot read HF_TOKEN_PATH={path}: No such file or directory"),
        ("folder", "cannot read HF_TOKEN_PATH={path}: Is a directory"),
        ("", "cannot use HF_TOKEN_PATH={path}: it is empty"),
        (" \n", "cannot use HF_TOKEN_PATH={path}: it is empty"),
        ("a key", "cannot use HF_TOKEN_PATH={path}: it is no key, but has blanks or odd letters"),
    ],
)
def test_a_token_file_without_a_token_is_named_and_nothing_is_asked(
    importer: Importer, tmp_path: Path, content: str | None, said: str
) -> None:
    path = tmp_path / "token"
    if content == "folder":
        path.mkdir()
    elif content is not None:
        path.write_text(content, encoding="utf-8")
    importer.environment = {"HF_TOKEN_PATH": str(path)}
    with pytest.raises(Transient) as caught:
        importer("org/gated")
    assert str(caught.value) == f"cannot import org/gated: {said.format(path=path)}"
    assert importer.upstream.requests == []


def test_the_other_side_says_when_to_come_again(importer: Importer) -> None:
    importer.upstream.repos["org/m"] = Repo(files={}, refused=(503, ""))
    importer.upstream.retry_after = "7"
    with pytest.raises(Transient) as caught:
        importer("org/m")
    assert caught.value.retry_after_seconds == 7


def test_a_network_that_is_away_is_named(importer: Importer) -> None:
    importer.environment = {"HF_ENDPOINT": "http://127.0.0.1:1"}
    with pytest.raises(
        Transient, match=r"cannot reach http://127.0.0.1:1: .*refused; for a mirror set HF_ENDPOINT"
    ):
        importer("org/m")


def test_a_mirror_with_a_password_is_refused_and_not_shown(importer: Importer) -> None:
    importer.environment = {"HF_ENDPOINT": importer.upstream.endpoint.replace("//", "//me:hush@")}
    with pytest.raises(Rejected, match=r"mirror in HF_ENDPOINT: it must not hold a user") as caught:
        importer("org/m")
    assert "hush" not in str(caught.value)
    assert (importer.upstream.requests, importer.left) == ([], [])


def test_a_token_that_can_be_none_is_not_shown(importer: Importer) -> None:
    importer.environment = {"HF_TOKEN": "hf_hüsh"}
    with pytest.raises(Transient, match=r"token is none, .* odd letters \(HF_TOKEN, or") as caught:
        importer("org/m")
    assert not {"ü", "xfc", "hf_"} & set(str(caught.value).partition("("))
    assert importer.upstream.requests == []


def test_an_offline_node_does_not_try(importer: Importer) -> None:
    importer.environment = {"HF_HUB_OFFLINE": "1"}
    with pytest.raises(Transient, match=r"told to stay offline \(HF_HUB_OFFLINE"):
        importer("org/m")
    assert importer.upstream.requests == []


@pytest.mark.parametrize("way", ["HF_TOKEN", "HF_TOKEN_PATH"])
def test_a_token_opens_what_is_gated_and_is_told_to_nobody(
    importer: Importer, tmp_path: Path, way: str
) -> None:
    path = tmp_path / "token"
    path.write_text(f"{TOKEN}\n", encoding="utf-8")
    importer.environment = {way: TOKEN if way == "HF_TOKEN" else str(path)}
    logs: list[str] = []

    def look(_: int) -> None:
        log = importer.folder / "an-import" / "huggingface.log"
        logs.append(log.read_text(encoding="utf-8"))
        for pid in importer.upstream.children():
            logs.append(Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8"))

    importer("org/gated", Steps(at=look))

    assert {each.token for each in importer.upstream.requests if "resolve" in each.path} == {TOKEN}
    assert any("huggingface_child" in log for log in logs)
    assert not any(TOKEN in log for log in logs)


def test_a_bad_token_is_told_from_a_missing_one(importer: Importer) -> None:
    importer.environment = {"HF_TOKEN": "hf_wrong"}
    with pytest.raises(Transient, match=r"gated: ask for access for the account of this node's t"):
        importer("org/gated")


def test_the_hub_s_keys_are_not_given_to_the_child(importer: Importer) -> None:
    importer.environment = {"MINIO_SECRET_KEY": "hub-secret", "HF_TOKEN": TOKEN}
    seen: list[bytes] = []

    def look(_: int) -> None:
        for pid in importer.upstream.children():
            seen.append(Path(f"/proc/{pid}/environ").read_bytes())

    importer("org/gated", Steps(at=look))

    assert seen
    assert not any(b"hub-secret" in each for each in seen)
