"""What `hookyard up` decides and says, without starting anything."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys

import pytest

from ops import supervisor
from ops.keeping import Child
from ops.settings import Bind
from ops.supervisor import collide


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (Bind("127.0.0.1", 8080), Bind("127.0.0.1", 8080), True),
        (Bind("0.0.0.0", 8080), Bind("127.0.0.1", 8080), True),
        (Bind("127.0.0.1", 8080), Bind("127.0.0.2", 8080), False),
        (Bind("127.0.0.1", 8080), Bind("127.0.0.1", 8081), False),
        (Bind("127.0.0.1", 0), Bind("127.0.0.1", 0), False),
    ],
)
def test_two_servers_need_two_addresses(one: Bind, other: Bind, same: bool) -> None:
    assert collide(one, other) is collide(other, one) is same


def test_whoever_stops_it_is_told_what_it_waits_for(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(supervisor, "_WAITS_EVERY_SECONDS", 0.01)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait(20)
    alive = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    children = [Child("worker-0", lambda: alive, (), process=alive), Child("jobs-0", lambda: ended, (), process=ended)]

    async def wait_a_little() -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(supervisor._tell_who_is_waited_for(children), 0.5)

    try:
        asyncio.run(wait_a_little())
    finally:
        alive.communicate()
    assert capsys.readouterr().out.splitlines()[0] == "hookyard waits for worker-0"
