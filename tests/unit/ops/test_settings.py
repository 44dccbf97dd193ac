"""Settings: what is allowed, what a wrong one says, and what is never shown."""

from __future__ import annotations

import base64
from ipaddress import ip_network
from pathlib import Path

import pytest

from ops.settings import (
    PREFIX,
    Bind,
    Settings,
    WrongSetting,
    describe,
    hide_password,
    load,
    parse_master_keys,
    unknown_names,
)

KEY = base64.b64encode(bytes(range(32))).decode()


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in Settings.model_fields:
        monkeypatch.delenv(PREFIX + name.upper(), raising=False)
    monkeypatch.chdir(tmp_path)


def test_without_any_setting_the_documented_defaults_hold(tmp_path: Path) -> None:
    settings = load()
    assert settings.database_url is None
    assert settings.data_dir == tmp_path / ".hookyard"
    assert settings.ingest_bind == Bind("127.0.0.1", 8080)
    assert (settings.pool_size, settings.lease_seconds, settings.shards) == (200, 10, 64)
    assert settings.networks == ()


def test_the_environment_wins_over_the_env_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HOOKYARD_POOL_SIZE=7\nHOOKYARD_SHARDS=8\nOTHER=1\n")
    monkeypatch.setenv("HOOKYARD_POOL_SIZE", "9")
    assert (load().pool_size, load().shards) == (9, 8)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("POOL_SIZE", "0"),
        ("POOL_SIZE", "many"),
        ("LEASE_SECONDS", "0.5"),
        ("LEASE_SECONDS", "nan"),
        ("SHARDS", "1025"),
        ("WORKER_PROCESSES", "0"),
        ("INGEST_BIND", "8080"),
        ("INGEST_BIND", "127.0.0.1:65536"),
        ("OPS_BIND", "127.0.0.1:http"),
        ("ALLOW_NETWORKS", "127.0.0.1/8"),
        ("ALLOW_NETWORKS", "somewhere"),
        ("DATABASE_URL", "mysql://u:p@h/x"),
        ("DATABASE_URL", "localhost"),
        ("REDIS_URL", "http://h"),
        ("MASTER_KEY", "c2hvcnQ="),
        ("MASTER_KEY", f"{KEY},"),
        ("MASTER_KEY", "*" * 44),
        ("ADMIN_TOKEN", "short"),
        ("LOG_LEVEL", "loud"),
        ("DATA_DIR", ""),
    ],
)
def test_a_wrong_setting_is_one_line_that_says_which_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(PREFIX + name, value)
    with pytest.raises(WrongSetting) as wrong:
        load()
    message = str(wrong.value)
    assert message.startswith(f"HOOKYARD_{name} is wrong: ")
    assert "allowed is " in message
    assert "\n" not in message


@pytest.mark.parametrize("name", ["DATABASE_URL", "REDIS_URL", "MASTER_KEY", "ADMIN_TOKEN"])
def test_a_wrong_secret_is_not_repeated(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(PREFIX + name, "S3CR3T")
    with pytest.raises(WrongSetting) as wrong:
        load()
    assert "S3CR3T" not in str(wrong.value)


def test_a_wrong_setting_of_the_env_file_is_shown_as_given(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("HOOKYARD_POOL_SIZE=lots\n")
    with pytest.raises(WrongSetting, match="'lots' was given"):
        load()


def test_secrets_are_in_no_description_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "HOOKYARD_DATABASE_URL", "postgresql://app:S3CR3T@db:5432/hookyard?sslmode=require&sslpassword=S3CR3T"
    )
    monkeypatch.setenv("HOOKYARD_REDIS_URL", "redis://:S3CR3T@cache:6379/0")
    monkeypatch.setenv("HOOKYARD_ADMIN_TOKEN", "S3CR3T-admin-token")
    monkeypatch.setenv("HOOKYARD_MASTER_KEY", KEY)
    settings = load()
    shown = describe(settings)
    assert shown["HOOKYARD_DATABASE_URL"] == "postgresql://app:***@db:5432/hookyard?sslmode=require&sslpassword=***"
    assert shown["HOOKYARD_REDIS_URL"] == "redis://:***@cache:6379/0"
    assert shown["HOOKYARD_ADMIN_TOKEN"] == "***"
    for text in (str(shown), repr(settings), str(settings)):
        assert "S3CR3T" not in text
        assert KEY not in text


def test_numbers_are_described_as_people_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKYARD_DRAIN_SECONDS", "2.5")
    told = describe(load())
    assert (told["HOOKYARD_LEASE_SECONDS"], told["HOOKYARD_DRAIN_SECONDS"]) == ("10", "2.5")


def test_what_a_supervisor_tells_its_children_is_not_described() -> None:
    assert "HOOKYARD_INGEST_FD" not in describe(load())


def test_an_empty_value_of_the_networks_replaces_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKYARD_ALLOW_NETWORKS", "")
    assert load().allow_networks == ()
    monkeypatch.setenv("HOOKYARD_ALLOW_NETWORKS", " 10.0.0.0/8, ::1/128 ")
    assert load().allow_networks == (ip_network("10.0.0.0/8"), ip_network("::1/128"))


@pytest.mark.parametrize(
    ("text", "line"),
    [("HOOKYARD_POOL_SIZE 7\n", 1), ("# a\n\nHOOKYARD_ADMIN_TOKEN\n", 3), ("A=1\nS3CR3T is my token\n", 2)],
)
def test_a_line_of_the_env_file_that_is_none_stops_and_is_not_repeated(
    tmp_path: Path, text: str, line: int, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / ".env").write_text(text)
    for read in (load, lambda: unknown_names({})):
        with pytest.raises(WrongSetting, match=rf"/\.env line {line} is wrong: allowed is NAME=VALUE$") as wrong:
            read()
        assert "S3CR3T" not in str(wrong.value)
    assert caplog.text == ""


def test_an_empty_url_counts_as_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKYARD_DATABASE_URL", "")
    assert load().database_url is None


def test_binds_may_be_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOKYARD_OPS_BIND", "[::1]:0")
    bind = load().ops_bind
    assert (bind.host, bind.port, str(bind), bind.is_loopback) == ("::1", 0, "[::1]:0", True)


def test_several_master_keys_in_either_alphabet_are_read() -> None:
    odd = bytes([251, 255]) * 16
    text = f"{KEY}, {base64.urlsafe_b64encode(odd).decode().rstrip('=')}"
    assert parse_master_keys(text) == (bytes(range(32)), odd)


def test_a_name_that_looks_misspelled_stops() -> None:
    with pytest.raises(WrongSetting, match="did you mean HOOKYARD_POOL_SIZE"):
        unknown_names({"HOOKYARD_POOLSIZE": "5"})


def test_a_name_that_means_nothing_is_only_told() -> None:
    assert unknown_names({"HOOKYARD_CHECKOUT": "x", "PATH": "y", "HOOKYARD_SHARDS": "1"}) == ["HOOKYARD_CHECKOUT"]


def test_a_password_of_a_url_is_hidden() -> None:
    assert hide_password("redis://h:6379/0") == "redis://h:6379/0"
    assert hide_password("postgresql://u@h/d") == "postgresql://u@h/d"
    assert hide_password("postgresql://u:a@b@h/d") == "postgresql://u:***@h/d"
