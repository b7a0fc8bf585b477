"""What a node refuses its models, and what its operator lets through."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from reconciler.backend.engines import Engines
from reconciler.backend.flags import Flags
from reconciler.backend.inventory import Build
from reconciler.backend.policy import need_permission
from reconciler.errors import Rejected
from reconciler.manifest.policy import STRICT, Permissions
from reconciler.plan.desired import JsonValue
from reconciler.plan.ids import Place
from tests.backend.build import files, inventory, llama_server, model, vllm, xllamacpp

PLACE = Place(file="prod/models.yaml", line=7, column=5)
GOLDEN = sorted((Path(__file__).parent / "golden").glob("*.json"))
UNTOLD = llama_server(Flags())
"""A build whose flags could not be had."""


def refusal(
    build: Build,
    extra_args: dict[str, JsonValue] | None = None,
    allow: Permissions = STRICT,
    env: dict[str, str] | None = None,
) -> str | None:
    try:
        asked = model(extra_args=extra_args or {}, env=env or {})
        need_permission(replace(asked, place=PLACE), build, allow)
    except Rejected as exc:
        return str(exc)
    return None


def test_the_refusal_names_the_flag_its_place_the_cause_and_the_cure() -> None:
    assert refusal(vllm(), {"trust-remote-code": True}) == (
        "cannot use extra_args.trust-remote-code (prod/models.yaml:7:5): it would run code of the "
        "manifest's choice on the node; if this node is to allow it, its operator starts the agent "
        "with --allow-engine-arg trust_remote_code"
    )
    assert refusal(llama_server(), env={"LD_PRELOAD": "/tmp/x.so"}) == (
        "cannot use env.LD_PRELOAD (prod/models.yaml:7:5): it would run code of the manifest's "
        "choice on the node; if this node is to allow it, its operator starts the agent with "
        "--allow-engine-env LD_PRELOAD"
    )


def test_the_flag_s_own_place_is_told_where_it_is_known() -> None:
    place = replace(PLACE, line=9)
    asked = model(extra_args={"trust-remote-code": True})
    of_its_own = {"extra_args.trust_remote_code": place}
    of_its_fallback = {"fallback.extra_args.trust_remote_code": place}

    with pytest.raises(Rejected, match=r"extra_args\.trust-remote-code \(prod/models\.yaml:9:5\)"):
        need_permission(replace(asked, flag_places=of_its_own), vllm(), STRICT)

    stands_in = replace(asked, flag_places=of_its_fallback, stands_in_for=asked.spec)
    with pytest.raises(Rejected, match=r"cannot use fallback\.extra_args\.\S+ \(prod/\S+:9:5\)"):
        need_permission(stands_in, vllm(), STRICT)


def test_what_the_agent_sets_is_refused_whatever_is_allowed() -> None:
    allow = Permissions(flags=frozenset({"host", "api_key"}), variables=frozenset({"VLLM_PORT"}))
    assert refusal(vllm(), {"host": "0.0.0.0"}, allow) == (
        "cannot use extra_args.host (prod/models.yaml:7:5): the agent sets it itself"
    )
    assert refusal(UNTOLD, {"api_key": "x"}, allow)
    assert refusal(vllm(), allow=allow, env={"VLLM_PORT": "1"})


@pytest.mark.parametrize(
    ("build", "extra_args", "name"),
    [
        (vllm(), {"trust_remote_code": True}, "trust_remote_code"),
        (vllm(version="0.99.0"), {"trust-rem": True}, "trust_remote_code"),
        # Not of this version, which is told enable_log_requests instead.
        (vllm(), {"disable_log_requests": False}, "disable_log_requests"),
        (vllm(version="0.99.0"), {"brand_new.x": 1}, "brand_new"),
        (vllm(), {"compilation_config.cache_dir": "x"}, "compilation_config"),
        (vllm(), {"chat_template": "/srv/chat.jinja"}, "chat_template"),
        (llama_server(), {"webui_mcp_proxy": True}, "webui_mcp_proxy"),
        (llama_server(), {"tools": "all"}, "tools"),
        (llama_server(), {"no-agent": False}, "agent"),
        (UNTOLD, {"brand_new": 1}, "brand_new"),
        (xllamacpp(), {"chat_template_file": "/srv/chat.jinja"}, "chat_template_file"),
    ],
)
def test_an_operator_allows_one_flag(
    build: Build, extra_args: dict[str, JsonValue], name: str
) -> None:
    said = refusal(build, extra_args)
    assert said is not None
    assert said.endswith(f"--allow-engine-arg {name}")
    assert refusal(build, extra_args, Permissions(flags=frozenset({name}))) is None
    assert refusal(build, extra_args, Permissions(flags=frozenset({"other"}))) == said


def test_an_operator_allows_one_variable() -> None:
    allow = Permissions(variables=frozenset({"MY_OWN"}))
    assert refusal(vllm(), env={"MY_OWN": "/srv/x"}, allow=allow) is None
    assert refusal(vllm(), env={"MY_OWN": "1", "PYTHONPATH": "/x"}, allow=allow)


def test_a_flag_that_a_build_calls_by_another_name_is_judged_by_all_of_them() -> None:
    """`--agent` in a build that renamed it."""
    renamed = llama_server()
    flag = renamed.flags.find("--tools")
    assert flag is not None
    other = Flags((type(flag)(names=("--helpers", *flag.names)),), True)
    assert refusal(llama_server(other), {"helpers": "all"})


def test_what_a_build_has_not_got_is_said_where_it_is_put_into_words() -> None:
    assert refusal(llama_server(), {"ctx_sise": 1}) is None
    refused = Engines(inventory(llama_server())).assess(
        model(format="gguf", extra_args={"ctx_sise": 1}), None
    )
    assert "did you mean ctx_size?" in str(refused.refusal)


def test_is_refused_before_the_files_are_here_and_again_at_the_start() -> None:
    wanted = model(format="gguf", extra_args={"tools": "all"})
    strict = Engines(inventory(llama_server()))
    assessed = strict.assess(wanted, None)
    assert assessed.choice is not None
    assert "--allow-engine-arg tools" in str(assessed.refusal)
    with pytest.raises(Rejected, match="--allow-engine-arg tools"):
        strict.launch(
            wanted, files(), assessed.choice, port=18001, environment={"PATH": "/bin"}, secrets={}
        )

    allowing = Engines(
        inventory(llama_server()), permissions=Permissions(flags=frozenset({"tools"}))
    )
    assert allowing.assess(wanted, None).refusal is None


@pytest.mark.parametrize("case", GOLDEN, ids=lambda path: path.stem)
def test_every_launch_of_the_golden_files_is_free(case: Path) -> None:
    given = json.loads(case.read_text(encoding="utf-8"))
    if "launch" in given:
        build = vllm() if "vllm" in case.stem else llama_server()
        wanted = {key: given["spec"].get(key, {}) for key in ("extra_args", "env")}
        assert refusal(build, wanted["extra_args"]) is None
