"""The YAML parser's complaints in the words of someone who edits the file."""

import re

from ruamel.yaml.error import MarkedYAMLError

_CANNOT_START = re.compile(r"found character (.+) that cannot start any token")
_FOUND = re.compile(r"but (?:found|got) '?([^']+)'?")
_TOKENS = {
    "<stream end>": "the end of the file",
    "<document start>": "a new document",
    "<document end>": "the end of the document",
    "<block mapping start>": "a new map",
    "<block sequence start>": "a new list",
    "<block end>": "the end of a block",
    "<scalar>": "more text",
    "-": "a '- '",
    "?": "a key",
    "<anchor>": "an anchor (&)",
    "<alias>": "an alias (*)",
    "<tag>": "a tag (!)",
}


def syntax_message(error: MarkedYAMLError) -> tuple[int, int, str]:
    """Line, column and message of a syntax error."""
    problem = str(error.problem or error.context or "")
    mark = error.problem_mark or error.context_mark
    began = error.context_mark
    if "could not find expected ':'" in problem and began is not None:
        mark = began
    line, column = (mark.line + 1, mark.column + 1) if mark is not None else (1, 1)
    since = f"line {began.line + 1}" if began is not None else "before"
    return line, column, f"cannot read this as YAML: {_explained(problem, since)}"


def _explained(problem: str, since: str) -> str:
    if "unexpected end of stream" in problem:
        return f"the quote that opens at {since} never closes (a truncated file?)"
    if found := _CANNOT_START.search(problem):
        if found[1] == r"'\t'":
            return "a tab; YAML is indented with spaces"
        return f"a value cannot start with {found[1]}; put it in quotes"
    if "mapping values are not allowed here" in problem:
        return "a ':' where no key can stand; look at the indentation, or quote text with ': '"
    if "could not find expected ':'" in problem:
        return "a line that is neither 'key: value' nor '- item'"
    if problem.startswith("expected <block end>") and (found := _FOUND.search(problem)):
        what = _TOKENS.get(found[1], found[1])
        return f"{what} does not fit the block that begins at {since}; look at the indentation"
    if problem.startswith("expected ','") and (found := _FOUND.search(problem)):
        closing = "]" if problem.startswith("expected ',' or ']'") else "}"
        what = _TOKENS.get(found[1], found[1])
        wish = f"expected ',' or '{closing}' for what opens at {since}"
        return f"{wish}, not {what}{_cut(found[1])}"
    if problem.startswith("expected the node content") and (found := _FOUND.search(problem)):
        what = _TOKENS.get(found[1], found[1])
        return f"a value is missing before {what}{_cut(found[1])}"
    return " ".join(problem.split())


def _cut(token: str) -> str:
    return " (a truncated file?)" if token == "<stream end>" else ""
