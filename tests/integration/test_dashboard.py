"""The pages without a browser: each is there, behind its policy, and holds what was sent as text only."""

from __future__ import annotations

import re

import pytest

from ops.dashboard.app import PAGES
from tests.by_hand import Hand
from tests.office import ADMIN, running

HOSTILE = "<script>alert(1)</script>'\""


async def test_every_page_is_there_and_has_neither_scripts_nor_styles_in_it(database_url: str, hand: Hand) -> None:
    hand.lane()
    event, parked = hand.posted(2, kind=HOSTILE, body=HOSTILE.encode())  # type: ignore[arg-type]
    hand.deliver(event)
    hand.park(parked)
    filled = {"/partners/{name}": "/partners/shop", "/destinations/{name}": "/destinations/warehouse"}
    filled |= {"/events/{id:path}": f"/events/{event}?view=text"}
    paths = [filled.get(path, path) for path in PAGES if path not in ("/replays/{id}", "/doctor")]
    async with running(database_url) as client:
        for path in paths:
            page = await client.get(path, headers=ADMIN)

            assert page.status_code == 200, (path, page.text)
            assert "script-src 'self';" in page.headers["content-security-policy"]
            assert "unsafe" not in page.headers["content-security-policy"]
            assert HOSTILE not in page.text
            assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page.text), path
            for asset in re.findall(r'(?:src|href)="(/static/[^"]+)"', page.text):
                assert (await client.get(asset)).status_code == 200, asset


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/partners/nobody", 404),
        ("/events/evt_nonsense", 404),
        ("/events?since=yesterday-ish", 422),
        ("/events?cursor=nonsense", 422),
        ("/replays/rpl_99", 404),
    ],
)
async def test_what_the_api_refuses_is_a_page_that_says_so(database_url: str, path: str, status: int) -> None:
    async with running(database_url) as client:
        page = await client.get(path, headers=ADMIN)

    assert page.status_code == status
    assert "<h1>" in page.text
