"""The memory that bodies take while they come in, and who gives way when there is no more of it.

Nothing is known of a sender before its whole body has been verified, so memory is granted to everybody, and taken back
from the partner whose unfinished bodies hold the most: there from the one that has been silent the longest. A partner's
traffic, or what is sent in its name, can thus cut off its own uploads, never those of a partner that holds less.
"""

import asyncio


class Upload:
    """One body on its way in. With `is_cut` it had to give way: its task is cancelled."""

    __slots__ = ("_partner", "_task", "_uploads", "is_cut", "size")

    def __init__(self, uploads: "Uploads", partner: str) -> None:
        self._uploads, self._partner, self._task = uploads, partner, asyncio.current_task()
        self.size = 0  # bytes held
        self.is_cut = False

    def add(self, size: int, bound: int, *, more: bool) -> bool:
        """Whether there is room for so many more bytes where all hold `bound` at most; `more` are to come."""
        self.size += size
        self._uploads.held_bytes += size
        if more:
            self._uploads.heard(self, self._partner, size)
        else:
            self._uploads.finished(self, self._partner, self.size - size)
        return self._uploads.held_bytes <= bound or self._uploads.make_room(self, bound)

    def cut(self) -> None:
        """Gives up what it holds, and its task."""
        self.is_cut = True
        self.release()
        if self._task is not None:
            self._task.cancel()

    def release(self) -> None:
        """Nothing is held."""
        self._uploads.finished(self, self._partner, self.size)
        self._uploads.held_bytes -= self.size
        self.size = 0


class _Line:
    """One partner's unfinished bodies, the longest silent first, and the bytes they hold."""

    __slots__ = ("held_bytes", "uploads")

    def __init__(self) -> None:
        self.uploads: dict[Upload, None] = {}
        self.held_bytes = 0


class Uploads:
    """The bodies in memory; `held_bytes` is the size of all, those that are whole and wait for COMMIT included."""

    __slots__ = ("_unfinished", "held_bytes")

    def __init__(self) -> None:
        self.held_bytes = 0
        self._unfinished: dict[str, _Line] = {}

    def heard(self, upload: Upload, partner: str, size: int) -> None:
        """So many more bytes of an unfinished body are held; of its partner's it was silent for the shortest time."""
        line = self._unfinished.get(partner)
        if line is None:
            line = self._unfinished[partner] = _Line()
        line.uploads.pop(upload, None)
        line.uploads[upload] = None
        line.held_bytes += size

    def finished(self, upload: Upload, partner: str, size: int) -> None:
        """The body, of which so much was held as unfinished, is not to be cut any more. Idempotent."""
        line = self._unfinished.get(partner)
        if line is None or upload not in line.uploads:
            return
        del line.uploads[upload]
        line.held_bytes -= size
        if not line.uploads:
            del self._unfinished[partner]

    def make_room(self, upload: Upload, bound: int) -> bool:
        """Whether all fits again after others were cut; not if it is this one's turn, or nothing is left to cut."""
        while self.held_bytes > bound:
            largest = max(self._unfinished.values(), key=lambda line: line.held_bytes, default=None)
            other = next(iter(largest.uploads)) if largest is not None else upload
            if other is upload:
                return False
            other.cut()
        return True
