"""The usual way: a FastAPI endpoint, one transaction per webhook, one rq job per event, `httpx.post` in the job.

It checks signatures and knows webhooks it has had; it keeps no order, records no attempts and knows no bad neighbours.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
from functools import cache
from typing import Annotated, Any

import httpx
import sqlalchemy as sa
from fastapi import Depends, FastAPI, HTTPException, Request
from redis import Redis
from rq import Queue

INSERT = sa.text("""
INSERT INTO webhooks (partner, webhook_id, headers, body) VALUES (:partner, :webhook_id, :headers, :body)
ON CONFLICT DO NOTHING RETURNING id
""")
READ = sa.text("SELECT headers, body FROM webhooks WHERE id = :id")
DONE = sa.text("UPDATE webhooks SET state = 'delivered', delivered_at = now() WHERE id = :id")

app = FastAPI()


@cache
def engine() -> sa.Engine:
    url = sa.make_url(os.environ["BASELINE_DATABASE_URL"]).set(drivername="postgresql+psycopg")
    return sa.create_engine(url, pool_size=20)


@cache
def queue() -> Queue:
    return Queue(connection=Redis.from_url(os.environ["BASELINE_REDIS_URL"]))


async def raw_body(request: Request) -> bytes:
    return await request.body()


@app.post("/in/{partner}", status_code=202)
def receive(partner: str, request: Request, body: Annotated[bytes, Depends(raw_body)]) -> dict[str, Any]:
    """Stores a webhook and queues its delivery."""
    headers = dict(request.headers)
    signed = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    key = base64.b64decode(os.environ["BASELINE_SECRET"].removeprefix("whsec_"))
    proof = "v1," + base64.b64encode(hmac.new(key, signed, hashlib.sha256).digest()).decode()
    if not hmac.compare_digest(proof, headers["webhook-signature"]):
        raise HTTPException(401)
    values = {"partner": partner, "webhook_id": headers["webhook-id"], "headers": json.dumps(headers), "body": body}
    with engine().begin() as connection:
        identity = connection.execute(INSERT, values).scalar_one_or_none()
    if identity is not None:
        queue().enqueue(deliver, identity)
    return {"event": identity, "duplicate": identity is None}


def deliver(identity: int) -> None:
    """The job."""
    with engine().begin() as connection:
        headers, body = connection.execute(READ, {"id": identity}).one()
    own = ("host", "content-length")
    passed = {name: value for name, value in headers.items() if name not in own}
    httpx.post(os.environ["BASELINE_DESTINATION"], content=body, headers=passed).raise_for_status()
    with engine().begin() as connection:
        connection.execute(DONE, {"id": identity})
