"""Settings: every `HOOKYARD_*` variable, read once, checked as a whole, frozen and handed down.

A wrong value stops the process with one line that names the variable, what was given (never a secret) and what is
allowed. What each variable allows is written beside it, once, and used for that line and for `hookyard config`.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Callable, Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import urlsplit, urlunsplit

from dotenv import dotenv_values
from dotenv.parser import parse_stream
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

PREFIX = "HOOKYARD_"
Network = IPv4Network | IPv6Network


class WrongSetting(Exception):
    """The message is one line: which setting, what was given, what is allowed."""


class Bind(NamedTuple):
    """Where a server listens; port 0 means any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def is_loopback(self) -> bool:
        return self.host in ("localhost", "::1") or self.host.startswith("127.")


def parse_bind(text: str) -> Bind:
    """HOST:PORT, the host in brackets where it is an IPv6 address. Raises ValueError."""
    host, colon, port = text.strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") if host.startswith("[") else host
    if not colon or not host or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError("not HOST:PORT")
    return Bind(host, int(port))


def parse_networks(text: str) -> tuple[Network, ...]:
    """The networks of a comma-separated list. Raises ValueError."""
    return tuple(ip_network(part.strip()) for part in text.split(",") if part.strip())


def _text_by(parse: Callable[[str], object]) -> BeforeValidator:
    """Text is parsed; what is parsed already (a default) stays."""
    return BeforeValidator(lambda given: parse(given) if isinstance(given, str) else given)


def _url_of(*schemes: str) -> Callable[[str | None], str | None]:
    def check(given: str | None) -> str | None:
        if given is None:
            return None
        parts = urlsplit(given)
        if parts.scheme not in schemes or not (parts.hostname or parts.path.strip("/")):
            raise ValueError
        _ = parts.port  # raises where it is no number
        return given

    return check


def _master_key(given: str | None) -> str | None:
    if given is not None:
        parse_master_keys(given)
    return given


def _empty_is_none(given: object) -> object:
    return None if isinstance(given, str) and not given.strip() else given


def _not_empty(given: object) -> object:
    if isinstance(given, str) and not given.strip():
        raise ValueError
    return given


def parse_master_keys(text: str) -> tuple[bytes, ...]:
    """The keys of a comma-separated list, each of exactly 32 bytes in base64. Raises ValueError."""
    keys = []
    for part in text.split(","):
        plain = part.strip().replace("-", "+").replace("_", "/").rstrip("=")
        try:
            key = base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
        except binascii.Error as problem:
            raise ValueError("not base64") from problem
        if len(key) != 32:
            raise ValueError("not 32 bytes")
        keys.append(key)
    return tuple(keys)


BindField = Annotated[Bind, NoDecode, _text_by(parse_bind)]
_Given = BeforeValidator(_empty_is_none)
_BIND = "HOST:PORT, port 0 to 65535"
_SECRET: Any = {"hide": "all"}
_URL: Any = {"hide": "password"}
_INTERNAL: Any = {"internal": True}


class Settings(BaseSettings):
    """The effective settings of one process. `description` is what is allowed."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_file=".env",
        env_file_encoding="utf-8",
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    database_url: Annotated[str | None, _Given, AfterValidator(_url_of("postgresql", "postgres"))] = Field(
        default=None, repr=False, description="postgresql://USER:PASSWORD@HOST:PORT/DATABASE", json_schema_extra=_URL
    )
    redis_url: Annotated[str | None, _Given, AfterValidator(_url_of("redis", "rediss", "unix"))] = Field(
        default=None, repr=False, description="redis://[:PASSWORD@]HOST:PORT/NUMBER", json_schema_extra=_URL
    )
    data_dir: Annotated[
        Path, BeforeValidator(_not_empty), AfterValidator(lambda path: path.expanduser().absolute())
    ] = Field(default=Path(".hookyard"), description="a directory", validate_default=True)
    ingest_bind: BindField = Field(default=Bind("127.0.0.1", 8080), description=_BIND)
    ops_bind: BindField = Field(default=Bind("127.0.0.1", 8081), description=_BIND)
    worker_bind: BindField = Field(default=Bind("127.0.0.1", 8082), description=_BIND)
    jobs_bind: BindField = Field(default=Bind("127.0.0.1", 8083), description=_BIND)
    ingest_metrics_bind: BindField = Field(default=Bind("127.0.0.1", 8084), description=_BIND)
    ingest_processes: int = Field(default=1, ge=1, le=64, description="1 to 64")
    worker_processes: int = Field(default=1, ge=1, le=64, description="1 to 64")
    admin_token: Annotated[str | None, _Given] = Field(
        default=None, min_length=8, repr=False, description="at least 8 characters", json_schema_extra=_SECRET
    )
    metrics_token: Annotated[str | None, _Given] = Field(
        default=None, min_length=8, repr=False, description="at least 8 characters", json_schema_extra=_SECRET
    )
    master_key: Annotated[str | None, _Given, AfterValidator(_master_key)] = Field(
        default=None, repr=False, description="base64 of 32 bytes; several, comma-separated", json_schema_extra=_SECRET
    )
    allow_networks: Annotated[tuple[Network, ...] | None, NoDecode, _text_by(parse_networks)] = Field(
        default=None, description="CIDR networks such as 10.0.0.0/8, comma-separated"
    )
    pool_size: int = Field(default=200, ge=1, le=10_000, description="1 to 10000 deliveries in flight")
    lease_seconds: float = Field(default=10, ge=1, le=3600, allow_inf_nan=False, description="1 to 3600 seconds")
    shards: int = Field(default=64, ge=1, le=1024, description="1 to 1024, fixed at the first migration")
    drain_seconds: float = Field(default=30, ge=1, le=300, allow_inf_nan=False, description="1 to 300 seconds")
    actor: Annotated[str | None, _Given] = Field(default=None, max_length=200, description="a name for the audit")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="debug, info, warning or error"
    )
    log_format: Literal["auto", "console", "json"] = Field(default="auto", description="auto, console or json")

    # What a supervisor tells its children; nobody else sets these.
    slot: str = Field(default="", description="ROLE-NUMBER", json_schema_extra=_INTERNAL)
    slots: str = Field(default="", description="the supervisor's slots, comma-separated", json_schema_extra=_INTERNAL)
    ingest_fd: int | None = Field(default=None, ge=0, description="an inherited socket", json_schema_extra=_INTERNAL)
    ops_fd: int | None = Field(default=None, ge=0, description="an inherited socket", json_schema_extra=_INTERNAL)
    health_dir: Path | None = Field(default=None, description="a directory of sockets", json_schema_extra=_INTERNAL)
    health_socket: Path | None = Field(default=None, description="a path for a socket", json_schema_extra=_INTERNAL)
    metrics_dir: Path | None = Field(default=None, description="a directory", json_schema_extra=_INTERNAL)

    @property
    def master_keys(self) -> tuple[bytes, ...]:
        """The first encrypts, all decrypt; empty when no key is known."""
        return parse_master_keys(self.master_key) if self.master_key else ()

    @property
    def networks(self) -> tuple[Network, ...]:
        """Networks that destinations may resolve to although they are not public."""
        return self.allow_networks or ()

    @property
    def under_supervisor(self) -> bool:
        return bool(self.slot)


def load() -> Settings:
    """The settings of the environment and of `.env` in the working directory. Raises WrongSetting."""
    try:
        _check_env_file()
        return Settings()
    except ValidationError as problem:
        raise WrongSetting(_one_line(problem)) from None
    except (OSError, UnicodeDecodeError) as problem:
        raise WrongSetting(f".env cannot be read: {problem}") from None


def unknown_names(environ: Mapping[str, str]) -> list[str]:
    """`HOOKYARD_*` names, there or in `.env`, that mean nothing. Raises WrongSetting for one that looks misspelled."""
    import difflib

    _check_env_file()
    known = {name.upper() for name in Settings.model_fields}
    names = {name for name in (*environ, *_names_in_env_file()) if name.upper().startswith(PREFIX)}
    unknown = sorted(name for name in names if name.upper().removeprefix(PREFIX) not in known)
    for name in unknown:
        if near := difflib.get_close_matches(name.upper().removeprefix(PREFIX), known, n=1, cutoff=0.8):
            raise WrongSetting(f"{name} is no setting: did you mean {PREFIX}{near[0]}?")
    return unknown


def describe(settings: Settings) -> dict[str, str]:
    """Every effective setting by variable, secrets hidden: what `hookyard config` prints."""
    return {
        PREFIX + name.upper(): _shown(getattr(settings, name), _mark(name, "hide"))
        for name in Settings.model_fields
        if not _mark(name, "internal")
    }


def hide_password(url: str) -> str:
    """The URL with `***` for its password, wherever it is."""
    parts = urlsplit(url)
    user, at, host = parts.netloc.rpartition("@")
    name, colon, _ = user.partition(":")
    query = re.sub(r"(?i)([a-z]*(?:password|secret|token)[a-z]*=)[^&]*", r"\1***", parts.query)
    return urlunsplit(parts._replace(netloc=f"{name}{colon}{'***' if colon else ''}{at}{host}", query=query))


def _check_env_file() -> None:
    """Returns if every line of `.env` can be read. Raises WrongSetting, which repeats no line: it may hold a secret."""
    path = Path(".env")
    if not path.is_file():
        return
    with path.open(encoding="utf-8") as file:
        for binding in parse_stream(file):
            if binding.error or (binding.key is not None and binding.value is None):
                text = binding.original.string
                line = binding.original.line + text[: len(text) - len(text.lstrip())].count("\n")
                raise WrongSetting(f"{path.absolute()} line {line} is wrong: allowed is NAME=VALUE")


def _names_in_env_file() -> list[str]:
    return list(dotenv_values(".env")) if os.access(".env", os.R_OK) else []


def _one_line(problem: ValidationError) -> str:
    name = str(problem.errors()[0]["loc"][0]).lower()
    variable = PREFIX + name.upper()
    given = _given(variable)
    if _mark(name, "hide"):
        shown = f"a value of {len(given)} characters"
    else:
        shown = repr(given if len(given) <= 80 else given[:80] + "…")
    return f"{variable} is wrong: {shown} was given, allowed is {Settings.model_fields[name].description}"


def _given(variable: str) -> str:
    """As it was given: names of variables count without regard to case, as pydantic reads them."""
    for source in (os.environ, dotenv_values(".env") if os.access(".env", os.R_OK) else {}):
        for name, value in source.items():
            if name.upper() == variable:
                return value or ""
    return ""


def _mark(name: str, mark: str) -> Any:
    extra = Settings.model_fields[name].json_schema_extra
    return extra.get(mark) if isinstance(extra, dict) else None


def _shown(value: object, hide: object) -> str:
    if value is None:
        return "(not set)"
    if hide:
        return hide_password(str(value)) if hide == "password" else "***"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple) and not isinstance(value, Bind):
        return ",".join(str(part) for part in value)
    return str(value)
