"""A bare server of ingest's kind, with ingest's settings: every request is answered 202 once its body is in."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import uvicorn

BODY = b'{"event":"evt_0000000000000000000000000000","sequence":1,"duplicate":false}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


async def accept(_: Any, receive: Any, send: Any) -> None:
    """The application."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 202, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


async def main(port: int) -> None:
    """Serves until it is ended."""
    config = uvicorn.Config(
        accept,
        host="127.0.0.1",
        port=port,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        backlog=2048,
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    while not server.started:
        await asyncio.sleep(0.01)
    print("ready", flush=True)
    await serving


if __name__ == "__main__":
    import uvloop

    uvloop.run(main(int(sys.argv[1])))
