"""The API keeps to its own description, whatever is sent to it: schemathesis makes up requests, valid and not."""

import asyncio
import sys
from pathlib import Path

import pytest

from tests.by_hand import Hand
from tests.office import ADMIN, serving

DESCRIPTION = Path(__file__).parents[2] / "docs/openapi.json"
SPARED = "positive_data_acceptance"  # names and ids are texts to the description, and refused by what is there
NO_INGEST = "send_event"  # needs one to post to; its 502 would count as a defect


@pytest.mark.slow
async def test_the_api_keeps_to_its_description(database_url: str, hand: Hand, tmp_path: Path) -> None:
    hand.lane()
    hand.park(*hand.posted(3))
    authorization = f"Authorization: {ADMIN['authorization']}"
    async with serving(database_url) as url:
        arguments = (
            *("run", str(DESCRIPTION), "--url", f"{url}/api/v1", "--header", authorization),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "5", "--generation-deterministic"),
            *("--exclude-checks", SPARED, "--exclude-operation-id", NO_INGEST),
            *("--no-color", "--continue-on-failure"),
        )
        run = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "schemathesis.cli", *arguments),
            cwd=tmp_path,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        told, _ = await run.communicate()

    assert run.returncode == 0, told.decode()[-20_000:]
