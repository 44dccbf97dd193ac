"""Tokens over the API, and who asks."""

from typing import Any

import sqlalchemy as sa
from fastapi import APIRouter, Depends

from ops.api.means import Admin, UseMeans, Viewer, holding, page
from ops.api.shapes import Me, Page, Token, TokenMade, TokenNew
from ops.cli.token import document
from storage import tokens

router = APIRouter(tags=["access"])


@router.get("/me", response_model=Me)
async def me(who: Viewer) -> Any:
    """Who asks, in which role."""
    return {"name": who.name, "role": who.role, "csrf": who.csrf}


@router.get("/tokens", response_model=Page[Token], dependencies=[Depends(holding("admin"))])
async def list_tokens(means: UseMeans) -> Any:
    """List the tokens, all on one page; what they are is not kept."""
    return page([document(token) for token in await means.desk.run(tokens.listed)], None)


@router.post("/tokens", response_model=TokenMade, status_code=201)
async def add_token(means: UseMeans, who: Admin, new: TokenNew) -> Any:
    """Add a token. The answer has it, and nothing else ever will."""

    def add(connection: sa.Connection) -> tuple[tokens.Token, str]:
        return tokens.add(connection, new.name, new.role, new.expires, actor=who.name)

    token, text = await means.desk.run(add)
    return document(token) | {"token": text}


@router.delete("/tokens/{name}", status_code=204)
async def revoke_token(means: UseMeans, who: Admin, name: str) -> None:
    """Revoke a token: it lets nobody in any more, and ends the sessions that were begun with it."""
    await means.desk.run(lambda connection: tokens.revoke(connection, name, actor=who.name))
