"""The checks of a model, as they are written: what is asked, and what must come."""

from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, StrictInt, Tag

from reconciler.manifest.fields import Checked, is_list
from reconciler.manifest.problem import shown

MAX_CHECKS = 20
_LONGEST_TEXT = 20_000


def _text_complaint(text: str) -> str | None:
    return None if text.strip() else "must not be empty, nor blanks alone"


def _file_complaint(path: str) -> str | None:
    parts = path.removeprefix("@/").split("/")
    if not path.startswith("@/") or {"", ".", ".."} & set(parts) or "\0" in path:
        return f"must be a file in the model's own folder, as '@/check.json', not {shown(path)}"
    return None


def _not_all_zeros(vector: tuple[float, ...]) -> tuple[float, ...]:
    if not any(vector):
        raise ValueError("must not be empty or all zeros: nothing has an angle to that")
    return vector


def _not_empty(texts: tuple[str, ...]) -> tuple[str, ...]:
    if not texts:
        raise ValueError("must not be empty")
    return texts


_Text = Annotated[
    str, Field(max_length=_LONGEST_TEXT), Checked(_text_complaint, r"[\s\S]*\S[\s\S]*")
]
_OwnFile = Annotated[str, Checked(_file_complaint, r"@/[^/].*")]
_Number = Annotated[float, Field(strict=True, allow_inf_nan=False)]
_Texts = Annotated[
    tuple[_Text, ...], Field(json_schema_extra={"minItems": 1}), AfterValidator(_not_empty)
]
_Vector = Annotated[
    tuple[_Number, ...], Field(json_schema_extra={"minItems": 1}), AfterValidator(_not_all_zeros)
]
_Alternatives = Annotated[
    Annotated[_Text, Tag("<word>")] | Annotated[_Texts, Tag("<list>")], Discriminator(is_list)
]
_Contains = Field(
    description="What the answer must hold, as it is written; of a list, one of them."
)


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Generates(_Strict):
    contains: _Alternatives = _Contains
    max_tokens: Annotated[StrictInt, Field(ge=1, le=4096)] = Field(
        default=64, description="The answer's length at most; more for a model that reasons first."
    )


class PromptCheck(_Generates):
    """A text to complete, and what the completion must hold."""

    prompt: _Text = Field(description="Completed as it stands, without a chat template.")


class MessageCheck(_Generates):
    """A message to answer in a chat, and what the answer must hold."""

    message: _Text = Field(description="A user's message, put into the model's chat template.")


class InputCheck(_Strict):
    """A text, and the embedding that it must come near to; as a list or as a file of the model."""

    input: _Text = Field(description="The text to embed.")
    embedding: _Vector | None = Field(default=None, description="The embedding that is expected.")
    embedding_file: _OwnFile | None = Field(
        default=None, description="The same as a JSON list in a file of the model's, as '@/x.json'."
    )
    cosine: Annotated[_Number, Field(gt=0, lt=1)] = Field(
        default=0.99, description="The least cosine of the angle between the two."
    )


class QueryCheck(_Strict):
    """A query, the text that must score highest, and others."""

    query: _Text = Field(description="What is looked for.")
    first: _Text = Field(description="The text that must score higher than the others.")
    others: _Texts = Field(description="Texts that must score lower.")


class AudioCheck(_Strict):
    """Speech, and what must be heard in it."""

    audio_file: _OwnFile = Field(description="A file in the model's folder, as '@/check.wav'.")
    contains: _Alternatives = _Contains


ASKED_BY = {
    "prompt": PromptCheck,
    "message": MessageCheck,
    "input": InputCheck,
    "query": QueryCheck,
    "audio_file": AudioCheck,
}
"""The key that tells what kind of check it is."""

CHECK_TAGS = frozenset(f"<{key}>" for key in ASKED_BY)
NO_KIND = "<none>"


def _kind(value: Any) -> str:
    if isinstance(value, dict):
        return next((f"<{key}>" for key in ASKED_BY if key in value), NO_KIND)
    known = (key for key, kind in ASKED_BY.items() if isinstance(value, kind))
    return f"<{next(known, 'prompt')}>"


CheckEntry = Annotated[
    Annotated[PromptCheck, Tag("<prompt>")]
    | Annotated[MessageCheck, Tag("<message>")]
    | Annotated[InputCheck, Tag("<input>")]
    | Annotated[QueryCheck, Tag("<query>")]
    | Annotated[AudioCheck, Tag("<audio_file>")],
    Discriminator(_kind),
]
