"""How answers look: one JSON document, or compact tables that are whole wherever no terminal bounds them.

rich folds a table into a terminal; a program gets plain lines, and is spared the time to load it.
"""

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

Rows = Sequence[Sequence[object]]


def print_json(document: Any) -> None:
    """The document, for a program."""
    print(json.dumps(document, indent=2, ensure_ascii=False))


def print_json_rows(rows: Iterable[Any]) -> None:
    """A list of any length, row by row, as one document."""
    comma = ""
    print("[", end="")
    for row in rows:
        print(f"{comma}\n  {json.dumps(row, ensure_ascii=False)}", end="")
        comma = ","
    print("\n]" if comma else "]")


def print_table(columns: Sequence[str], rows: Rows, nothing: str) -> None:
    """Aligned columns; numbers to the right. `nothing` is said where there is no row."""
    if not rows:
        print(nothing)
        return
    to_the_right = [all(isinstance(row[index], int | float | None) for row in rows) for index in range(len(columns))]
    lines = _folded if sys.stdout.isatty() else _aligned
    cells = [[shown(value) for value in row] for row in rows]
    print("\n".join(line.rstrip() for line in lines(columns, cells, to_the_right)))


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> Iterator[str]:
    """Each row on one line, however long."""
    table = [columns, *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        cells = zip(row, widths, to_the_right, strict=True)
        yield "  ".join(text.rjust(width) if right else text.ljust(width) for text, width, right in cells)


def _folded(columns: Sequence[str], rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> Iterator[str]:
    """As wide as the terminal: what is longer goes on below, in its column."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name, right in zip(columns, to_the_right, strict=True):
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(highlight=False)
    with console.capture() as capture:
        console.print(table)
    yield from capture.get().splitlines()


def print_fields(fields: Mapping[str, object]) -> None:
    """`name  value` lines."""
    width = max(map(len, fields))
    for name, value in fields.items():
        print(f"{name.replace('_', ' '):<{width}}  {shown(value)}".rstrip())


def shown(value: object) -> str:
    """A value for people."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, datetime):
        return instant(value) or "-"
    if isinstance(value, list | tuple):
        return ", ".join(map(shown, value)) or "-"
    return printable(str(value))


def printable(text: str) -> str:
    """Text from outside without anything that moves a terminal's cursor."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def instant(moment: datetime | None) -> str | None:
    """ISO 8601 in UTC, to the millisecond."""
    if moment is None:
        return None
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def age(seconds: float | None) -> str:
    """A span for people: `4s`, `3m`, `2h`, `5d`."""
    if seconds is None:
        return "-"
    for unit, size in (("d", 86_400), ("h", 3_600), ("m", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f}{unit}"
    return f"{seconds:.0f}s"


def say(text: str) -> None:
    """A line for the person, not part of a document: on stderr."""
    print(text, file=sys.stderr)
