"""What a partner sent, made visible: as text, as JSON with its blanks rearranged, as bytes. Never changed otherwise."""

from __future__ import annotations

import json
import re

TEXT_BYTES = 64 << 10
HEX_BYTES = 4 << 10
LINE = 16  # bytes
PIECES = re.compile(r'"(?:[^"\\]|\\.)*"|[{}\[\],:]|[^\s{}\[\],:"]+')


def text(body: bytes) -> str:
    """The first 64 KiB as UTF-8; what is none is shown as �."""
    return body[:TEXT_BYTES].decode(errors="replace")


def hexadecimal(body: bytes) -> str:
    """The first 4 KiB, 16 bytes a line: offset, bytes, and what of them is printable ASCII."""
    lines = []
    for offset in range(0, min(len(body), HEX_BYTES), LINE):
        part = body[offset : offset + LINE]
        shown = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in part)
        lines.append(f"{offset:08x}  {part.hex(' '):<{3 * LINE - 1}}  {shown}")
    return "\n".join(lines)


def indented(body: bytes) -> str | None:
    """A JSON body on lines of its own; numbers, escapes, order and repeated members as sent. None: no JSON."""
    if len(body) > TEXT_BYTES:
        return None
    try:
        written = body.decode()
        json.loads(written)
    except (ValueError, RecursionError):
        return None
    pieces = PIECES.findall(written)
    out: list[str] = []
    depth = 0
    for piece, following in zip(pieces, [*pieces[1:], ""], strict=True):
        if piece in "{[":
            depth += following not in "]}"
            out.append(piece + ("" if following in "]}" else _line(depth)))
        elif piece in "]}":
            is_empty = out[-1] in ("{", "[")
            depth -= not is_empty
            out.append(piece if is_empty else _line(depth) + piece)
        else:
            out.append({",": "," + _line(depth), ":": ": "}.get(piece, piece))
    return "".join(out)


def _line(depth: int) -> str:
    return "\n" + "  " * depth
