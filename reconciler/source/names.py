"""Names of files as they are shown: whatever bytes somebody named a file with (PURE)."""


def shown_name(name: str) -> str:
    r"""`name` with what no terminal and no JSON can take as an escape, like `\xff` or `\x1b`.

    A byte that is no UTF-8 comes from the file system as a lone surrogate (PEP 383).
    """
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() else _escaped(c) for c in name)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode()
