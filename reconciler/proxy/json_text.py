"""Values as JSON, whatever text is in them."""

import msgspec


def encode(value: object) -> bytes:
    r"""As msgspec does it; what UTF-8 cannot hold is shown as its escape, like `\udcff`.

    Texts of others get into answers: names of files, what a YAML says, an engine's last lines.
    """
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_encodable(msgspec.to_builtins(value)))


def _encodable(value: object) -> object:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {_encodable(key): _encodable(item) for key, item in value.items()}
        case list() | tuple():
            return [_encodable(item) for item in value]
        case _:
            return value


def why_unreadable(body: bytes, exc: msgspec.DecodeError) -> str:
    """In msgspec's words, but for nothing at all, which it takes for something that was cut."""
    return "it is empty" if not body or body.isspace() else str(exc)
