"""How an answer goes out over ASGI, also when the request has not been read to its end."""

import asyncio
from typing import NamedTuple

from starlette.types import Receive, Scope, Send

from domain.problems import MEDIA_TYPE, Problem
from domain.verification import Response

Header = tuple[bytes, bytes]

SHORT_BODY_DIGITS = 5  # up to 99,999 bytes are taken in and dropped, so that the connection can stay
LINGER_SECONDS, LINGER_BYTES = 2.0, 8 << 20  # for a sender in mid-upload to read our answer before the reset

JSON = (b"content-type", b"application/json")
PROBLEM = (b"content-type", MEDIA_TYPE.encode())
CLOSE = (b"connection", b"close")
NO_SNIFFING = (b"x-content-type-options", b"nosniff")  # what is echoed must not become a page
NO_CONTENT = 204  # has neither a body nor a length


class Reply(NamedTuple):
    """An HTTP answer. With `cut` the body was not read to its end, so the connection cannot be used again."""

    status: int
    headers: list[Header]
    body: bytes
    cut: bool = False


async def drop(scope: Scope, receive: Receive, problem: Problem, retry_after: int = 0) -> Reply:
    """The refusal of a request whose body has not been read: a short one is dropped, of any other the rest is cut off.

    A sender that waits for 100 Continue is not asked for its body.
    """
    framing = dict(scope["headers"])
    length = framing.get(b"content-length", b"0")
    if b"transfer-encoding" in framing or b"expect" in framing or len(length) > SHORT_BODY_DIGITS:
        return refusal(problem, retry_after, cut=True)
    while length != b"0":
        message = await receive()
        if message["type"] != "http.request" or not message.get("more_body"):
            break
    return refusal(problem, retry_after)


async def answer(reply: Reply, receive: Receive, send: Send) -> None:
    """The reply is sent; the connection is closed where it cannot be used again."""
    headers = [*reply.headers, CLOSE] if reply.cut else reply.headers
    await send({"type": "http.response.start", "status": reply.status, "headers": headers})
    if reply.cut:
        # The answer is out, but closing on a sender in mid-upload would reset the connection and lose it.
        await send({"type": "http.response.body", "body": reply.body, "more_body": True})
        await _linger(receive)
        await send({"type": "http.response.body", "body": b""})
    else:
        await send({"type": "http.response.body", "body": reply.body})


async def _linger(receive: Receive) -> None:
    left = LINGER_BYTES
    try:
        async with asyncio.timeout(LINGER_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body"):
                    return
                left -= len(message.get("body", b""))
    except (TimeoutError, asyncio.CancelledError):
        return


def has_body(scope: Scope) -> bool:
    """Whether the request announces a body."""
    framing = dict(scope["headers"])
    return framing.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in framing


def accepted(event: str, sequence: int, *, duplicate: bool) -> Reply:
    """202 with the event's id and number."""
    text = "true" if duplicate else "false"
    body = f'{{"event":"{event}","sequence":{sequence},"duplicate":{text}}}'.encode()
    return Reply(202, [JSON, _length(body)], body)


def told(response: Response) -> Reply:
    """The answer to a provider's question."""
    headers = [(b"content-type", response.content_type.encode()), NO_SNIFFING, _length(response.body)]
    return Reply(response.status, headers if response.status != NO_CONTENT else [], response.body)


def refusal(problem: Problem, retry_after: int = 0, *, cut: bool = False) -> Reply:
    """The problem as an answer; `retry_after` in seconds, 0 for none."""
    body = problem.document()
    headers = [PROBLEM, _length(body)]
    if retry_after:
        headers.append((b"retry-after", str(retry_after).encode()))
    if problem.status == 405:
        headers.append((b"allow", b"POST"))
    return Reply(problem.status, headers, body, cut)


def _length(body: bytes) -> Header:
    return b"content-length", str(len(body)).encode()
