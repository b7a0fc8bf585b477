"""Which files of a listing are the model."""

import pytest

from reconciler.cache.choose import Choice, Wish, choose, choose_for_import, wish_of
from reconciler.errors import Transient, XgenError
from reconciler.plan.desired import Format
from tests.cache.specs import spec

SPLIT = [f"big-{number:05}-of-00003.gguf" for number in (1, 2, 3)]


def chosen(names: list[str], *, file: str | None = None, **changes: object) -> Choice:
    source = str(changes.pop("source", "gguf/org_name"))
    main_ref = changes.pop("main_ref", None)
    wish = wish_of(spec(source, **changes), source, file)
    return choose(dict.fromkeys(names, 1), wish, str(main_ref) if main_ref else None)


def test_takes_the_only_gguf_and_nothing_else() -> None:
    choice = chosen(["x.gguf", "README.md", "config.json", ".xgen/catalog.json"])

    assert choice == Choice(format=Format.GGUF, root="", main="x.gguf", paths=("x.gguf",))


def test_takes_all_shards_and_gives_the_first() -> None:
    choice = chosen([*reversed(SPLIT), "README.md"])

    assert (choice.main, choice.paths) == (SPLIT[0], tuple(SPLIT))


@pytest.mark.parametrize("file", [SPLIT[0], SPLIT[2]])
def test_naming_any_shard_names_the_model(file: str) -> None:
    assert chosen([*SPLIT, "other.gguf"], file=file).main == SPLIT[0]


def test_names_a_missing_shard() -> None:
    with pytest.raises(Transient, match=f"1 of 3 shards missing: {SPLIT[1]}"):
        chosen([SPLIT[0], SPLIT[2]])


def test_several_models_are_listed_until_one_is_named() -> None:
    names = ["m-Q4_K_M.gguf", "m-Q8_0.gguf", *SPLIT]

    with pytest.raises(Transient, match="it holds 3 GGUF models; name one with `file:`") as refused:
        chosen(names)

    assert all(name in str(refused.value) for name in ("m-Q4_K_M.gguf", "m-Q8_0.gguf", SPLIT[0]))
    assert chosen(names, file="m-Q8_0.gguf").paths == ("m-Q8_0.gguf",)


def test_a_file_in_a_folder_can_be_named_by_its_name_alone() -> None:
    assert chosen(["q4/m.gguf", "q8/n.gguf"], file="n.gguf").main == "q8/n.gguf"


def test_a_file_that_is_not_there_is_answered_with_the_nearest() -> None:
    with pytest.raises(Transient, match=r"no m-Q4_K_S\.gguf; nearest: m-Q4_K_M\.gguf"):
        chosen(["m-Q4_K_M.gguf", "other.gguf"], file="m-Q4_K_S.gguf")


def test_takes_the_projector_beside_the_model() -> None:
    choice = chosen(["m.gguf", "mmproj-F16.gguf", "other/mmproj-F32.gguf"])

    assert choice.mmproj == "mmproj-F16.gguf"
    assert choice.paths == ("m.gguf", "mmproj-F16.gguf")


def test_several_projectors_are_asked_about() -> None:
    names = ["m.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"]

    with pytest.raises(Transient, match="it holds 2 projectors; name one in extra_args"):
        chosen(names)

    named = chosen(names, extra_args={"mmproj": "@/mmproj-F16.gguf"})
    assert (named.mmproj, named.paths) == ("mmproj-F16.gguf", ("m.gguf", "mmproj-F16.gguf"))
    assert chosen(names, extra_args={"no-mmproj": True}).paths == ("m.gguf",)


def test_an_importance_matrix_is_no_model() -> None:
    assert chosen(["m.gguf", "imatrix_unsloth.gguf"]).main == "m.gguf"


def test_takes_files_that_arguments_name() -> None:
    arguments = {"chat_template_file": "@/template.jinja", "lora": ["@/a.gguf"]}
    names = ["m.gguf", "template.jinja", "a.gguf", "README.md"]

    choice = chosen(names, file="m.gguf", extra_args=arguments)

    assert choice.paths == ("a.gguf", "m.gguf", "template.jinja")
    with pytest.raises(
        Transient,
        match=r"no template\.jinja, which extra_args\.chat_template_file names; nearest: template2",
    ):
        chosen(["m.gguf", "a.gguf", "template2.jinja"], file="m.gguf", extra_args=arguments)


def test_takes_files_that_checks_name() -> None:
    choice = chosen(["m.gguf", "checks/a.json", "b.json"], check_files=("checks/a.json",))

    assert choice.paths == ("checks/a.json", "m.gguf")
    with pytest.raises(Transient, match=r"no a\.json, which a check names"):
        chosen(["m.gguf"], check_files=("a.json",))


def test_takes_a_prefix_without_the_weights_of_other_formats() -> None:
    choice = chosen(
        [
            "config.json", "model.safetensors", "1_Pooling/config.json", "tokenizer.model",
            "pytorch_model.bin", "onnx/model.onnx", "onnx/config.json", "openvino/model.xml",
            "tf_model.h5", "original/consolidated.00.pth", "m.gguf", ".gitattributes",
            ".xgen/catalog.json", ".cache/huggingface/x.lock",
        ],
        source="huggingface/org_name",
    )  # fmt: skip

    assert choice == Choice(
        format=Format.SAFETENSORS,
        root="",
        main="",
        paths=("1_Pooling/config.json", "config.json", "model.safetensors", "tokenizer.model"),
    )


def test_a_missing_safetensors_shard_is_named() -> None:
    """triton#5711 (scenario 32): a look at a prefix that is being pushed sees half of it."""
    with pytest.raises(Transient, match=r"1 of 2 shards missing: model-00002-of-00002\.safetens"):
        chosen(["config.json", "model-00001-of-00002.safetensors"])


def test_a_prefix_with_both_formats_goes_by_its_name_or_the_format() -> None:
    both = ["m.gguf", "model.safetensors", "config.json"]

    assert chosen(both, source="gguf/a_x").format is Format.GGUF
    assert chosen(both, source="huggingface/a_x").format is Format.SAFETENSORS
    assert chosen(both, source="huggingface/a_x", format=Format.GGUF).main == "m.gguf"


@pytest.mark.parametrize(
    ("names", "cause"),
    [
        (["README.md"], "no GGUF and no safetensors"),
        (["pytorch_model.bin"], r"weights like pytorch_model\.bin are not loaded"),
        (["mmproj-F16.gguf"], "no GGUF"),
    ],
)
def test_a_prefix_without_a_model_says_so(names: list[str], cause: str) -> None:
    with pytest.raises(Transient, match=cause):
        chosen(names)


@pytest.mark.parametrize(
    ("names", "said", "cause"),
    [
        (["a.gguf"], Format.SAFETENSORS, r"says format: safetensors, and there is a\.gguf"),
        (["b.safetensors"], Format.GGUF, r"says format: gguf, and there is b\.safetensors"),
        (["README.md"], Format.GGUF, r"it holds no GGUF model$"),
    ],
)
def test_a_format_that_the_files_do_not_have_is_named_beside_what_is_there(
    names: list[str], said: Format, cause: str
) -> None:
    with pytest.raises(Transient, match=cause):
        chosen(names, format=said)


@pytest.mark.parametrize("empty", ["m.gguf", "model.safetensors"])
def test_empty_weights_are_refused(empty: str) -> None:
    wish = wish_of(spec(), "gguf/org_name", None)

    with pytest.raises(XgenError, match=f"{empty} is empty"):
        choose({empty: 0, "config.json": 0}, wish)


def test_unsafe_names_are_refused_where_they_would_be_pulled() -> None:
    with pytest.raises(Transient, match=r"cannot cache '\.\./\.\./x\.gguf'"):
        chosen(["../../x.gguf"])
    with pytest.raises(Transient, match="would leave its folder"):
        chosen(["snapshots/../x.gguf"])


@pytest.mark.parametrize("base", ["", "models--org--name/"])
def test_takes_the_only_snapshot_or_the_one_of_the_main_branch(base: str) -> None:
    one = [f"{base}snapshots/r1/{name}" for name in ("config.json", "model.safetensors")]
    other = [f"{base}snapshots/r2/model.safetensors", f"{base}refs/main", f"{base}blobs/abc"]

    single = chosen(one)
    assert (single.root, single.main) == (f"{base}snapshots/r1", f"{base}snapshots/r1")
    assert single.paths == tuple(one)
    assert chosen([*one, *other], main_ref="r2").paths == (other[0],)


@pytest.mark.parametrize("main_ref", [None, "r3", "../../.."])
def test_several_snapshots_are_listed_where_nothing_decides(main_ref: str | None) -> None:
    with pytest.raises(Transient, match=r"it holds 2 snapshots .* snapshots/r1, snapshots/r2"):
        chosen(["snapshots/r1/m.gguf", "snapshots/r2/m.gguf"], main_ref=main_ref)


def test_a_gguf_in_a_snapshot_is_named_relative_to_it() -> None:
    choice = chosen(["snapshots/r1/q4.gguf", "snapshots/r1/q8.gguf"], file="q8.gguf")

    assert (choice.root, choice.main) == ("snapshots/r1", "snapshots/r1/q8.gguf")


@pytest.mark.parametrize("name", ["x-00001-of-00000.gguf", "x-00000-of-00002.gguf"])
def test_a_shard_number_that_makes_no_sense_is_a_plain_file(name: str) -> None:
    assert chosen([name]).main == name


def test_an_import_brings_what_specs_may_name_beside_a_gguf() -> None:
    sizes = dict.fromkeys(
        [
            "m-Q4.gguf", "m-Q8.gguf", "mmproj-F16.gguf", "mmproj-F32.gguf", "template.jinja",
            "README.md", ".gitattributes", "imatrix.dat", "m.safetensors", "other/mmproj-F16.gguf",
        ],
        9,
    )  # fmt: skip
    sizes["imatrix.dat"] = 64 << 20
    wish = Wish(where="gguf/org_name", file="m-Q4.gguf")
    assert choose_for_import(sizes, wish) == (
        "README.md",
        "m-Q4.gguf",
        "mmproj-F16.gguf",
        "mmproj-F32.gguf",
        "template.jinja",
    )
    assert choose_for_import(sizes, Wish(where="huggingface/org_name")) == (
        "README.md",
        "imatrix.dat",
        "m.safetensors",
        "template.jinja",
    )
