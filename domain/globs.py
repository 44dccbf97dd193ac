"""Which types of events a subscription takes: globs, and the one regular expression that says the same.

`*` is any run of characters (dots and line breaks too), `?` exactly one; everything else is itself, case-sensitive.
The expression means the same to PostgreSQL's `~` (an "advanced" regular expression) and to Python's `re` with DOTALL.
"""

from collections.abc import Sequence

MAX_GLOBS = 100
MAX_CHARACTERS = 255  # no type is longer
EVERYTHING = "*"


def normal_globs(globs: Sequence[str]) -> tuple[str, ...] | None:
    """The globs without repeats, sorted; None where they take every event, typed or not.

    Raises: ValueError for an empty one, one too long, too many, or characters no type can have.
    """
    if len(globs) > MAX_GLOBS:
        raise ValueError(f"{len(globs)} types are too many: at most {MAX_GLOBS}")
    for glob in globs:
        if not glob or len(glob) > MAX_CHARACTERS:
            raise ValueError(f"type {glob[:40]!r} has {len(glob)} characters: 1 to {MAX_CHARACTERS} are allowed")
        if "\0" in glob or any("\ud800" <= character <= "\udfff" for character in glob):
            raise ValueError(f"type {glob[:40]!r} holds a character that no type can have")
    squeezed = {_squeeze(glob) for glob in globs}
    if not squeezed or EVERYTHING in squeezed:
        return None
    return tuple(sorted(squeezed))


def pattern_of(globs: Sequence[str]) -> str:
    """One anchored regular expression that matches what at least one of the globs does."""
    return "^(?:" + "|".join(map(_expression, globs)) + ")$"


def _squeeze(glob: str) -> str:
    """The same glob without runs of stars, which mean nothing more than one and cost a matcher dearly."""
    while "**" in glob:
        glob = glob.replace("**", "*")
    return glob


def _expression(glob: str) -> str:
    return "".join(map(_character, glob))


def _character(character: str) -> str:
    if character == "*":
        return ".*"
    if character == "?":
        return "."
    if character.isascii() and not character.isalnum():
        return "\\" + character
    return character
