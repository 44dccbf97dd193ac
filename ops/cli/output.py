"""How answers look: one JSON document, or compact tables that are whole wherever no terminal bounds them.

A table is fitted into a terminal; a program gets plain lines, and is spared the time to load what that takes.
"""

import json
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import zip_longest
from typing import Any

GAP = 2  # blanks between columns
FLOW_WIDTH = 24  # a folded column is no narrower
Rows = Sequence[Sequence[object]]
BEYOND_ASCII = re.compile(r"[^\n -~]")  # within JSON: only in strings


def print_json(document: Any, *, on_one_line: bool = False) -> None:
    """The document, for a program; on one line where others follow."""
    print(_json(document, None if on_one_line else 2))


def print_json_rows(rows: Iterable[Any]) -> None:
    """A list of any length, row by row, as one document."""
    comma = ""
    print("[", end="")
    for row in rows:
        print(f"{comma}\n  {_json(row)}", end="")
        comma = ","
    print("\n]" if comma else "]")


def _json(document: Any, indent: int | None = None) -> str:
    """The document as JSON that people can read, and that moves no terminal's cursor: what could is escaped."""
    text = json.dumps(document, indent=indent, ensure_ascii=False)
    return BEYOND_ASCII.sub(lambda found: found[0] if found[0].isprintable() else json.dumps(found[0])[1:-1], text)


def print_table(
    columns: Sequence[str], rows: Rows, nothing: str, *, spare: Sequence[str] = (), flow: str | None = None
) -> None:
    """Aligned columns; numbers to the right. `nothing` is said where there is no row.

    On a terminal that is too narrow the column `flow` is folded and times are shortened, then the `spare` columns are
    left out in their order. Ids and names are never broken.
    """
    if not rows:
        print(nothing)
        return
    to_the_right = [all(isinstance(row[index], int | float | None) for row in rows) for index in range(len(columns))]
    if sys.stdout.isatty():
        lines = _fitted(columns, rows, to_the_right, spare, flow)
    else:
        lines = _aligned(columns, [[shown(value) for value in row] for row in rows], to_the_right)
    print("\n".join(line.rstrip() for line in lines))


class Columns:
    """Lines of a table that has no end: a column is as wide as it was told, and wider from the first cell that is."""

    def __init__(self, columns: Mapping[str, int]) -> None:
        self._widths = dict(columns)

    def head(self) -> None:
        """The names of the columns are printed."""
        self.line(list(self._widths))

    def line(self, cells: Sequence[object]) -> None:
        """A line is printed; on a terminal no longer than that is wide."""
        told = []
        for name, value in zip(self._widths, cells, strict=True):
            text = shown(value)
            self._widths[name] = max(self._widths[name], _cells(text)) if name != [*self._widths][-1] else 0
            told.append(_padded(text, self._widths[name], isinstance(value, int)))
        print(_cut((" " * GAP).join(told).rstrip()))


def _cut(text: str) -> str:
    if not sys.stdout.isatty():
        return text
    from rich.cells import cell_len, set_cell_size

    room = shutil.get_terminal_size().columns
    return text if cell_len(text) <= room else set_cell_size(text, room - 1) + "…"


def _aligned(columns: Sequence[str], rows: Sequence[Sequence[str]], to_the_right: Sequence[bool]) -> Iterator[str]:
    """Each row on one line, however long."""
    table = [columns, *rows]
    widths = [max(len(row[index]) for row in table) for index in range(len(columns))]
    for row in table:
        cells = zip(row, widths, to_the_right, strict=True)
        yield "  ".join(text.rjust(width) if right else text.ljust(width) for text, width, right in cells)


def _fitted(
    columns: Sequence[str], rows: Rows, to_the_right: Sequence[bool], spare: Sequence[str], flow: str | None
) -> Iterator[str]:
    """As wide as the terminal, or as what must not be broken."""
    room = shutil.get_terminal_size().columns
    cells = [[shown(value) for value in row] for row in rows]
    widths = _widths(columns, cells)
    if _least(columns, widths, flow) > room:
        cells = [[_brief(value) for value in row] for row in rows]
        widths = _widths(columns, cells)
    for name in spare:
        if _least(columns, widths, flow) > room:
            del widths[columns.index(name)]
    if flow in columns and (index := columns.index(flow)) in widths:
        widths[index] = min(widths[index], max(FLOW_WIDTH, room - _together(widths) + widths[index]))
    for row in (columns, *cells):
        folded = [_folded(row[index], width) for index, width in widths.items()]
        for line in zip_longest(*folded, fillvalue=""):
            parts = zip(line, widths.items(), strict=True)
            yield (" " * GAP).join(_padded(text, width, to_the_right[index]) for text, (index, width) in parts)


def _folded(text: str, width: int) -> list[str]:
    """Lines of at most so many cells of a terminal."""
    from rich.cells import chop_cells

    lines = textwrap.wrap(text, width, break_on_hyphens=False) or [""]
    return [piece for line in lines for piece in chop_cells(line, width) or [""]]


def _padded(text: str, width: int, to_the_right: bool) -> str:
    blanks = " " * (width - _cells(text))
    return blanks + text if to_the_right else text + blanks


def _cells(text: str) -> int:
    from rich.cells import cell_len

    return cell_len(text)


def _widths(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> dict[int, int]:
    """The cells of a terminal that each column takes."""
    return {index: max(_cells(row[index]) for row in [columns, *cells]) for index in range(len(columns))}


def _together(widths: Mapping[int, int]) -> int:
    return sum(widths.values()) + GAP * (len(widths) - 1)


def _least(columns: Sequence[str], widths: Mapping[int, int], flow: str | None) -> int:
    """What they take together if the column that may be folded is narrow."""
    return _together({i: min(width, FLOW_WIDTH) if columns[i] == flow else width for i, width in widths.items()})


def _brief(value: object) -> str:
    """A time in UTC to the second, without its year; anything else as it is."""
    return f"{value.astimezone(UTC):%m-%d %H:%M:%S}" if isinstance(value, datetime) else shown(value)


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
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {text}" for name, text in sorted(value.items()) if text) or "-"
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
