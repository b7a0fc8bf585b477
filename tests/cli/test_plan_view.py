"""A plan on terminals and pipes, and its JSON against the published schema."""

import io
import json
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from rich.console import Console

from reconciler.cli.plan_schema import plan_schema
from reconciler.cli.plan_view import as_json, as_text
from reconciler.cli.plan_words import summary
from reconciler.plan.changes import NodeChanges, Planned, Verb
from reconciler.plan.changes_json import node_as_json, node_from_json
from reconciler.plan.ids import ModelName
from reconciler.plan.phase import State
from tests.cli.plan_answers import strict
from tests.cli.plans import FULL, PLAN, change, node


def shown(*nodes: NodeChanges, columns: int = 200, colours: bool = False) -> str:
    out = io.StringIO()
    console = Console(
        file=out,
        width=columns,
        force_terminal=colours,
        color_system="standard" if colours else None,
        highlight=False,
    )
    console.print(as_text(nodes, against="compared with an agent"))
    return out.getvalue()


@pytest.mark.parametrize(
    "line",
    [
        "  ~ chat   restart    spec changed (1:750b → 1:a6e2)",
        "      gap about 39 s",
        "      extra_args.ctx_size: 2048 → 4096",
        "      no gap (surge)",
        "      source: gguf/org_code, download 7.0 GiB, 2.0 GiB are cached",
        "      source: gguf/org_chat, already cached",
        "      held back: waits for the maintenance window that opens at 02:00",
        "  in this order: fetch code → stop chat → start chat",
        "  leaves the cache to make room: gguf/org_gone @ abababababab (4.0 GiB)",
        "  memory: 8.0 GiB of 64.0 GiB used, 18.0 GiB then",
        "  nothing runs here, and nothing would",
        "  error: prod.yaml:7:9: spec.models[0].typo: unknown key",
        "1 to start, 2 to restart, 1 to stop, 1 to surge, 1 to reroute, 1 refused, 1 held back, "
        "1 unchanged; 7.0 GiB to download, and 1 of unknown size; 4.0 GiB leave the cache; "
        "longest gap about 39 s, and 1 not known",
    ],
)
def test_what_a_plan_costs_is_said(line: str) -> None:
    assert line in shown(*PLAN, columns=250).splitlines()


def test_when_a_start_is_ready_is_said_where_that_is_known() -> None:
    start = change("m", Verb.START, "not running", fetch=True, source="gguf/org_m")
    assert "ready" not in shown(node(start))
    known = replace(start, ready_seconds=52.0)
    assert "      ready after about 52 s" in shown(node(known)).splitlines()


def test_files_that_several_models_share_are_one_download() -> None:
    fetch: dict[str, Any] = {"fetch": True, "source": "gguf/org_m", "cached_bytes": 0}
    shared = node(
        change("a", Verb.START, download_bytes=7 << 30, **fetch),
        change("b", Verb.START, download_bytes=0, download_with=ModelName("a"), **fetch),
        order=tuple(
            Planned(kind=kind, model=ModelName(name), reason="why")
            for kind in ("FetchFiles", "StartBackend")
            for name in ("a", "b")
        ),
    )

    lines = shown(shared).splitlines()

    assert "      source: gguf/org_m, with the download of a" in lines
    assert "  in this order: fetch a → start a → start b" in lines
    assert summary([shared]).endswith("; 7.0 GiB to download")
    assert node_from_json(json.loads(json.dumps(node_as_json(shared)))) == shared


def test_of_what_is_not_cached_nobody_says_that_it_may_be() -> None:
    start = change("m", Verb.START, fetch=True, source="gguf/org_m", cached_bytes=0)

    assert "gguf/org_m, fetched from the hub, which does not say how large it is" in (
        shown(node(start))
    )


def test_how_a_block_is_lifted_stands_below_it() -> None:
    text = shown(node(change("m", Verb.REFUSED, "bad flag", state=State.BLOCKED)))

    assert "the same once more: xgen-model reconcile --retry --model m" in text


def test_a_refusal_of_a_plan_that_asked_nobody_says_what_to_do_itself() -> None:
    assert "--retry" not in shown(node(change("m", Verb.REFUSED, "there is no GPU 3")))


def test_the_legend_explains_the_signs_that_are_used_and_no_others() -> None:
    lines = shown(node(change("m", Verb.START), change("n", Verb.STOP))).splitlines()

    assert lines[-2] == "+ start  - stop"


def test_many_models_that_stay_as_they_are_are_counted() -> None:
    many = [change(f"m{number}", Verb.UNCHANGED, "loaded") for number in range(20)]
    other = change("m20", Verb.UNCHANGED, "loaded", engine="version 2 is installed, 1 runs")

    text = shown(node(*many, other))

    assert "  = 20 models are unchanged" in text
    assert "m19" not in text
    assert "  = m20  unchanged  loaded" in text


@pytest.mark.parametrize("columns", [40, 60, 80, 120])
def test_nothing_is_wider_than_the_terminal_and_what_is_wrapped_stays_indented(
    columns: int,
) -> None:
    lines = shown(*PLAN, columns=columns).splitlines()

    assert max(map(len, lines)) <= columns
    assert [line for line in lines if line != line.rstrip()] == []
    start = next(at for at, line in enumerate(lines) if "needs 10.0 GiB" in line)
    end = next(at for at, line in enumerate(lines) if "extra_args.ctx_size" in line)
    assert all(line.startswith(" " * 6) for line in lines[start:end])


def test_each_kind_of_change_has_a_colour_of_its_own() -> None:
    text = shown(*PLAN, colours=True)

    for number, sign in ((32, "+"), (33, "~"), (36, "^"), (31, "-")):
        assert f"\x1b[{number}m  {sign} " in text


def test_a_plan_without_changes_says_nothing_of_costs() -> None:
    assert summary([node(change("m", Verb.UNCHANGED))]) == (
        "0 to start, 0 to restart, 0 to stop, 1 unchanged"
    )


def test_the_json_is_what_the_schema_says_and_nothing_else() -> None:
    answer = json.loads(json.dumps(as_json(PLAN, agent=None, against="x")))

    strict().validate(answer)


def test_the_published_schema_lets_later_releases_add_fields() -> None:
    answer: dict[str, Any] = json.loads(json.dumps(as_json(PLAN, agent=None, against="x")))
    answer["nodes"][0]["models"][0]["of_a_later_release"] = 1

    jsonschema.Draft202012Validator(plan_schema()).validate(answer)
    assert not strict().is_valid(answer)


def test_what_an_agent_answers_is_read_back_as_it_was() -> None:
    answer = json.loads(json.dumps(as_json(PLAN, agent=None, against="x")))

    assert node_from_json(answer["nodes"][0]) == FULL
