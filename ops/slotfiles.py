"""Metric files of the roles under `hookyard up`: one set per slot, in one directory, read by the ops role.

prometheus-client's multi-process files are kept by process id. Here the slot (`worker-1`) is the identity instead: a
process that follows another in its slot goes on counting where that one ended, however it ended, and the directory does
not grow with restarts. Gauges tell what is now, so those of a slot go when its process does.
"""

from __future__ import annotations

import contextlib
import json
import os
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

import structlog
from prometheus_client import values
from prometheus_client.metrics_core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

FILE_BYTES = 1 << 18  # about 1,800 series; reserved, because a page that a full disk cannot hold kills who writes to it
_LENGTH = struct.Struct("i")
KINDS = ("counter", "histogram", "gauge_livesum")


def use_slot(directory: Path, slot: str) -> None:
    """Metrics created from now on in this process live in the slot's files. Call it before any is created.

    A file that cannot be read is set aside, one of each kind at most; its counts begin again.
    """
    forget_gauges(directory, slot)
    for path in directory.glob(f"*_{slot}.db"):
        if not _is_sound(path):
            path.replace(path.with_suffix(".damaged"))
            structlog.get_logger("metrics").warning("metrics.damaged", file=path.name)
    for kind in KINDS:
        _reserve(directory / f"{kind}_{slot}.db")
    os.environ["PROMETHEUS_MULTIPROC_DIR"] = str(directory)
    values.ValueClass = values.MultiProcessValue(lambda: slot)  # type: ignore[no-untyped-call]


def forget_gauges(directory: Path, slot: str = "*") -> None:
    """No process of this slot (or of any) is alive: its gauges are gone, its counters stay."""
    for path in directory.glob(f"gauge_live*_{slot}.db"):
        path.unlink(missing_ok=True)


def collect(directory: Path) -> Iterable[Metric]:
    """The metrics of all slots, added up. A file that cannot be read is left out."""
    paths = [str(path) for path in sorted(directory.glob("*.db")) if _is_sound(path)]
    merged: Iterable[Metric] = MultiProcessCollector.merge(paths)  # type: ignore[no-untyped-call]
    return merged


def _is_sound(path: Path) -> bool:
    """Whether every entry can be read, here and by the process that goes on writing it."""
    try:
        for key in _keys(path.read_bytes()):
            _metric, _name, labels, _help = json.loads(key)
            labels.items()
    except (OSError, ValueError, TypeError, AttributeError, struct.error):
        return False
    return True


def _keys(data: bytes) -> Iterator[bytes]:
    """The keys of a file of prometheus_client.mmap_dict, which itself trusts every length. Raises: ValueError,
    struct.error.

    The used length (4 bytes, 4 of padding), then per entry: the key's length (4), the key, padding to a multiple of 8,
    and two doubles.
    """
    if not data:
        return
    used, position = _LENGTH.unpack_from(data)[0], 8
    if not 0 <= used <= len(data):
        raise ValueError("the used length lies")
    while position < used:
        length = _LENGTH.unpack_from(data, position)[0]
        end = position + 4 + length + 8 - (length + 4) % 8
        if length <= 0 or end + 16 > used:
            raise ValueError("an entry's length lies")
        yield data[position + 4 : position + 4 + length]
        position = end + 16


def _reserve(path: Path) -> None:
    """The file has its room on the disk; where there is none, it is tried without."""
    with contextlib.suppress(OSError):
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            if os.fstat(descriptor).st_size < FILE_BYTES:
                os.posix_fallocate(descriptor, 0, FILE_BYTES)
        finally:
            os.close(descriptor)
