"""How large the layers of a GGUF are, by the names of its tensors (PURE).

blk.N.*  a block    token_*, position_*  what comes before    all else  the output

Source: llama_arch's names of tensors, and llama_model::load_tensors, which takes `token_embd` for
the output where there is no `output`, in ggml-org/llama.cpp.
"""

import re
from collections.abc import Iterable

from reconciler.backend.model_info import Layers

_BLOCK = re.compile(rb"blk\.(\d{1,4})\.")
_INPUT = (b"token_", b"position_")
_OUTPUT = b"output.weight"


def layers_of(sizes: Iterable[tuple[bytes, int]]) -> Layers | None:
    """Of all shards together. None: there are no blocks, or a tensor's type is not known."""
    blocks: dict[int, int] = {}
    before, after, has_output = 0, 0, False
    for name, size_bytes in sizes:
        if not size_bytes:
            return None
        if (found := _BLOCK.match(name)) is not None:
            number = int(found[1])
            blocks[number] = blocks.get(number, 0) + size_bytes
        elif name.startswith(_INPUT):
            before += size_bytes
        else:
            after += size_bytes
            has_output |= name == _OUTPUT
    if not blocks:
        return None
    return Layers(
        blocks=tuple(blocks.get(number, 0) for number in range(max(blocks) + 1)),
        input_bytes=before,
        output_bytes=after,
        tied=not has_output,
    )
