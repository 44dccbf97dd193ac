"""An HTTP/1.x answer as it trickles in: bytes go in, what is known comes out. No I/O.

Our own, because a delivery needs little and needs it exactly: the status as soon as its headers are in, header bytes as
they are, interim answers skipped, the body raw, undecoded and capped, and a plain statement whether the connection is
left clean. It is lenient where that harms nobody (odd header bytes, bare line feeds, folded lines) and never reuses a
connection whose framing it doubts.
"""

import re

LIMIT_BYTES = 64 * 1024  # of one answer that are looked at, heads and body together

_HEAD_END = re.compile(rb"\r?\n\r?\n")
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9]{2})(?:[ \t].*)?", re.DOTALL)
_LENGTH = re.compile(rb"[0-9]{1,18}")
_CHUNK_SIZE = re.compile(rb"[0-9A-Fa-f]{1,15}")
_UNTIL_CLOSE = -1


class BadAnswer(Exception):
    """What came is no HTTP/1.x answer, or breaks its own framing."""


class Answer:
    """One answer. `status` is None until a final status and its headers are in; `complete` once the body has ended."""

    __slots__ = (
        "_buffer",
        "_chunked",
        "_end_of_chunk",
        "_left",
        "_searched",
        "_trailers",
        "body",
        "complete",
        "headers",
        "reusable",
        "status",
        "taken",
    )

    def __init__(self) -> None:
        self.status: int | None = None
        self.headers: list[tuple[bytes, bytes]] = []  # names in lower case
        self.body = b""
        self.complete = False
        self.reusable = False  # the connection may carry another exchange once this one is complete
        self.taken = 0  # bytes received
        self._buffer = b""
        self._searched = 0
        self._chunked = False
        self._end_of_chunk = False
        self._trailers = False
        self._left = 0  # bytes of the body, or of the chunk, still to come

    @property
    def is_full(self) -> bool:
        """As much has been read as will be looked at."""
        return self.taken >= LIMIT_BYTES

    def all(self, name: bytes) -> list[bytes]:
        """The values of a header, in order."""
        return [value for key, value in self.headers if key == name]

    def feed(self, data: bytes) -> None:
        """Takes what was received. Raises: BadAnswer."""
        kept = data[: max(LIMIT_BYTES - self.taken, 0)]
        has_surplus = self.complete or len(kept) < len(data)
        self.taken += len(kept)
        self._take(kept)
        if has_surplus and data:
            self.reusable = False  # more came than this one answer, or than will be read

    def _take(self, data: bytes) -> None:
        if self.complete:
            return
        if self.status is not None:
            self._take_body(data)
        else:
            self._buffer += data
            self._take_heads()

    def end(self) -> None:
        """The peer has closed: an answer without a length is complete. Raises: BadAnswer where none has come."""
        self.reusable = False
        if self.status is None:
            raise BadAnswer("closed before the answer" if not self.taken else "closed within the answer's headers")
        if self._left == _UNTIL_CLOSE:
            self.complete = True

    def _take_heads(self) -> None:
        """Reads heads until the first that is not interim (RFC 9110 section 15.2)."""
        while self.status is None:
            self._buffer = self._buffer.lstrip(b"\r\n") if not self._searched else self._buffer
            if self._buffer[:7] != b"HTTP/1."[: len(self._buffer)]:
                raise BadAnswer("not an HTTP/1.x answer")
            end = _HEAD_END.search(self._buffer, self._searched)
            if end is None:
                self._searched = max(len(self._buffer) - 3, 0)
                if self.is_full:
                    raise BadAnswer(f"more than {LIMIT_BYTES >> 10} KiB of headers")
                return
            head, rest = self._buffer[: end.start()], self._buffer[end.end() :]
            self._buffer, self._searched = rest, 0
            self._take_head(head)
        rest, self._buffer = self._buffer, b""
        self._take_body(rest)

    def _take_head(self, head: bytes) -> None:
        first, *lines = head.split(b"\n")
        line = _STATUS_LINE.fullmatch(first.rstrip(b"\r"))
        if line is None:
            raise BadAnswer("not an HTTP/1.x answer")
        status = int(line[2])
        if status < 200 and status != 101:
            if self.is_full:
                raise BadAnswer("nothing but interim answers")
            return
        self.status = status
        self.headers = _fields(lines)
        self._frame(is_1_1=line[1] == b"1")

    def _frame(self, is_1_1: bool) -> None:
        """Decides how long the body is and whether the connection survives it (RFC 9112 section 6.3)."""
        lengths = {value.strip() for value in self.all(b"content-length")}
        codings = [part.strip().lower() for value in self.all(b"transfer-encoding") for part in value.split(b",")]
        tokens = {part.strip().lower() for value in self.all(b"connection") for part in value.split(b",")}
        self.reusable = is_1_1 and b"close" not in tokens and self.status != 101
        if self.status in (101, 204, 304):
            self.reusable = self.reusable and not codings and lengths <= {b"0"}  # a body here would poison what follows
            self.complete = True
        elif codings:
            self._chunked = codings[-1] == b"chunked"
            self._left = 0 if self._chunked else _UNTIL_CLOSE
            self.reusable = self.reusable and self._chunked and not lengths
        elif len(lengths) == 1 and _LENGTH.fullmatch(length := next(iter(lengths))):
            self._left = int(length)
            self.complete = self._left == 0
        else:
            self._left, self.reusable = _UNTIL_CLOSE, False

    def _take_body(self, data: bytes) -> None:
        if not data:
            return
        if self.complete:
            self.reusable = False
        elif self._chunked:
            self._buffer += data
            self._take_chunks()
        elif self._left == _UNTIL_CLOSE:
            self.body += data
        else:
            self.body += data[: self._left]
            self.reusable = self.reusable and len(data) <= self._left
            self._left = max(self._left - len(data), 0)
            self.complete = self._left == 0

    def _take_chunks(self) -> None:
        """Takes whole chunks out of the buffer; by position, since a hostile answer has tens of thousands of them."""
        data, at, parts = self._buffer, 0, []
        while not self.complete:
            if self._left:
                part = data[at : at + self._left]
                parts.append(part)
                at += len(part)
                self._left -= len(part)
                self._end_of_chunk = not self._left
                if self._left:
                    break
            newline = data.find(b"\n", at)
            if newline < 0:
                break
            line, at = data[at:newline], newline + 1
            self._take_chunk_line(line.strip())
        self.body += b"".join(parts)
        self._buffer = data[at:]
        self.reusable = self.reusable and not (self.complete and self._buffer)

    def _take_chunk_line(self, line: bytes) -> None:
        """One line between chunks: the end of one, the size of the next, or a trailer. Raises: BadAnswer."""
        if self._end_of_chunk:
            if line:
                raise BadAnswer("malformed chunk")
            self._end_of_chunk = False
        elif self._trailers:
            self.complete = not line
        else:
            size = line.partition(b";")[0].strip()
            if not _CHUNK_SIZE.fullmatch(size):
                raise BadAnswer("malformed chunk")
            self._left = int(size, 16)
            self._trailers = not self._left


def _fields(lines: list[bytes]) -> list[tuple[bytes, bytes]]:
    """Header lines as pairs; a folded line continues the one before, a line without a colon is passed over."""
    fields: list[tuple[bytes, bytes]] = []
    for line in lines:
        name, colon, value = line.partition(b":")
        if line[:1] in (b" ", b"\t") and fields:
            fields[-1] = (fields[-1][0], fields[-1][1] + b" " + line.strip())
        elif colon:
            fields.append((name.strip().lower(), value.strip()))
    return fields
