"""A plan as the comment of a pull request: as a forge would render it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from reconciler.cli.plan_markdown import LIMIT, MARKER, as_markdown, marker
from reconciler.plan.changes import FieldChange, NodeChanges, Verb
from tests.cli.plans import FULL, PLAN, change, node


def comment(*nodes: NodeChanges, limit: int = LIMIT, what: str = "manifests/prod") -> str:
    return as_markdown(nodes, against="compared with an agent", what=what, limit=limit)


def tokens(markdown: str) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(markdown)


def cells(markdown: str) -> list[list[str]]:
    """Of the table's rows, as text."""
    rows: list[list[str]] = []
    inside = False
    for token in tokens(markdown):
        inside = token.type == "tbody_open" or (inside and token.type != "tbody_close")
        if inside and token.type == "tr_open":
            rows.append([])
        if inside and token.type == "inline":
            rows[-1].append("".join(each.content for each in token.children or ()))
    return rows


def test_a_bot_finds_its_comment_by_the_first_line() -> None:
    assert comment(FULL).splitlines()[0] == "<!-- xgen-model plan: manifests/prod -->"


@pytest.mark.parametrize("what", ["a --> b", "x--y", "<!-- z", "a\nb", "--"])
def test_no_name_ends_the_marker(what: str) -> None:
    line = marker(what)

    assert line.startswith(f"{MARKER}: ")
    assert "--" not in line.removeprefix("<!--").removesuffix("-->")
    assert "\n" not in line


def test_the_gravest_changes_come_first() -> None:
    assert [row[0] for row in cells(comment(*PLAN))] == ["!", "-", "~", "~", "^", "+", ">"]


def test_what_does_not_change_stands_in_the_details_alone() -> None:
    text = comment(FULL)

    table, _, details = text.partition("<details>")
    assert "`same`" not in table
    assert "- unchanged: `same`" in details
    assert details.count("</details>") == 1


def test_the_table_says_what_a_reviewer_asks() -> None:
    (chat,) = [row for row in cells(comment(FULL)) if row[1] == "chat"]

    assert "gap about 39 s" in chat[4]
    assert "extra_args.ctx_size" in chat[4]


def test_a_change_of_many_fields_shows_some_and_counts_the_rest() -> None:
    fields = tuple(FieldChange(path=f"f{number}", old=1, new=2) for number in range(7))

    text = comment(node(change("m", Verb.RESTART, fields=fields)))

    assert "and 3 more fields |" in text
    assert "`f6`: `1` → `2`" in text


@pytest.mark.parametrize("models", [300, 3000])
def test_what_a_comment_has_no_room_for_is_counted(models: int) -> None:
    reason = "a reason of some length that says what is the matter " * 2
    changes = [change(f"m{number:04}", Verb.START, reason) for number in range(models)]
    stopped = change("zz", Verb.STOP, "removed from the manifest")

    text = comment(node(*changes, stopped))

    rows = cells(text)
    assert len(text) <= LIMIT
    assert rows[0][1] == "zz"
    left_out = models + 1 - len(rows)
    shown = f"**{left_out} more changes are not shown: a comment has no room for them.**"
    assert (shown in text) == (left_out > 0)
    assert "*Without the details of 1 node: a comment has no room for them.*" in text


def test_a_long_reason_is_cut_and_says_so() -> None:
    text = comment(node(change("m", Verb.REFUSED, "x" * 1000)))

    assert "… (700 characters more)" in text
    assert "x" * 1000 in text


WORDS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
HOSTILE = st.one_of(
    WORDS,
    st.sampled_from(["|", "`", "``x", "</details>", "-->", "@team", "a|b`|`", "![x](http://y)"]),
)


@given(
    st.lists(st.tuples(HOSTILE, HOSTILE, HOSTILE), min_size=1, max_size=4), st.integers(1500, 9000)
)
def test_no_text_leaves_its_cell_or_passes_the_limit(
    texts: list[tuple[str, str, str]], limit: int
) -> None:
    changes = [
        change(name, Verb.START, reason, fields=(FieldChange(path=path, old=name, new=reason),))
        for name, reason, path in texts
    ]

    text = comment(node(*changes), limit=limit, what=texts[0][1])

    assert len(text) <= limit
    assert all(len(row) == 5 for row in cells(text))
    blocks = [token.content for token in tokens(text) if token.type == "html_block"]
    assert all(block.startswith(("<!--", "<details>", "</details>")) for block in blocks)
    inline = [each for token in tokens(text) for each in token.children or ()]
    assert {each.content for each in inline if each.type == "html_inline"} <= {"<br>"}
    assert not any(each.type in ("image", "link_open") for each in inline)


def test_nobody_is_mentioned() -> None:
    assert "@team" not in comment(node(change("m", Verb.START, "ask @team")))
