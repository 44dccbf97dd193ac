"""The hot connection, against a server that says nothing."""

import asyncio

from storage.database import Connection


async def test_a_login_that_was_cancelled_leaves_nothing_open_however_long_anybody_remembers_it() -> None:
    asked, closed = asyncio.Event(), asyncio.Event()

    async def mute(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(1000):
            asked.set()
        closed.set()
        writer.close()

    async with await asyncio.start_server(mute, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        connection = Connection(f"postgresql://somebody@127.0.0.1:{port}/hookyard", "a test")
        fetching = asyncio.create_task(connection.fetch("SELECT 1"))
        await asked.wait()

        fetching.cancel()
        (remembered,) = await asyncio.gather(fetching, return_exceptions=True)

        await asyncio.wait_for(closed.wait(), 3)
        assert isinstance(remembered, asyncio.CancelledError)
