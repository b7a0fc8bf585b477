"""What an engine says of its own command line when it refuses it (PURE).

Source: Python's argparse, which vLLM's and llama-cpp-python's servers use, ends with code 2 and
`vllm serve: error: argument --max-num-seqs: invalid int value: '4.5'` as its last line.
"""

import re
from collections.abc import Sequence

_CODE = 2
_REFUSED = re.compile(
    r"[^:]*: error: ((?:argument -|unrecognized arguments: |ambiguous option: ).*)"
)


def refused_arguments(code: int | None, last_lines: Sequence[str]) -> str | None:
    """What it would refuse at each start, in its words; None: it ended for another reason."""
    found = _REFUSED.fullmatch(last_lines[-1].strip()) if code == _CODE and last_lines else None
    return found[1] if found else None
