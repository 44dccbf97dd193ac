"""The roles as processes of their own: each tells its health and its metrics on an address of its own."""

from __future__ import annotations

import base64
import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ops.embedded import free_port
from ops.processes import stop
from ops.settings import WrongSetting
from ops.wiring import role_settings

ROOT = Path(__file__).resolve().parents[2]
BINDS = {"ingest": "INGEST_METRICS_BIND", "worker": "WORKER_BIND", "jobs": "JOBS_BIND", "ops": "OPS_BIND"}
TELLS = {
    "ingest": "hookyard_commit_batch_size_count",
    "worker": "hookyard_shards_owned 64.0",
    "jobs": "hookyard_jobs_total",
    "ops": "hookyard_database_up 1",
}


@contextlib.contextmanager
def role(name: str, database_url: str, redis_url: str, folder: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("HOOKYARD_")} | {
        "HOOKYARD_DATABASE_URL": database_url,
        "HOOKYARD_REDIS_URL": redis_url,
        "HOOKYARD_MASTER_KEY": base64.b64encode(b"k" * 32).decode(),
        "HOOKYARD_DATA_DIR": str(folder / "none"),
        "HOOKYARD_INGEST_BIND": "127.0.0.1:0",
        f"HOOKYARD_{BINDS[name]}": f"127.0.0.1:{port}",
    }
    command = [sys.executable, "-m", "ops.cli", name]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)
    try:
        yield process
    finally:
        stop(process, (signal.SIGTERM, 10))
        assert process.stderr is not None
        process.stderr.close()


def answer(port: int, path: str) -> httpx.Response | None:
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"http://127.0.0.1:{port}{path}", timeout=5)
    return None


@pytest.mark.parametrize("name", BINDS)
def test_a_role_alone_tells_its_health_and_metrics_and_ends_in_good_order(
    name: str, database_url: str, redis_url: str, tmp_path: Path
) -> None:
    port = free_port()
    with role(name, database_url, redis_url, tmp_path, port) as process:
        deadline = time.monotonic() + 30
        while not ((ready := answer(port, "/health/ready")) and ready.status_code == 200):
            assert time.monotonic() < deadline, f"not ready: {ready and ready.text}"
            time.sleep(0.05)
        while TELLS[name] not in (((metrics := answer(port, "/metrics")) and metrics.text) or ""):
            assert time.monotonic() < deadline, f"not told: {metrics and metrics.text}"
            time.sleep(0.05)
        assert "_created" not in (metrics.text if metrics else "")

        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.parametrize("name", BINDS)
def test_a_role_asks_for_what_it_uses_and_for_nothing_else(
    name: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOOKYARD_DATABASE_URL", database_url)
    for variable in ("REDIS_URL", "MASTER_KEY"):
        monkeypatch.delenv(f"HOOKYARD_{variable}", raising=False)
    needs = {"ingest": {"REDIS_URL", "MASTER_KEY"}, "worker": {"REDIS_URL", "MASTER_KEY"}, "jobs": {"REDIS_URL"}}
    for missing in sorted(needs.get(name, ()), reverse=True):
        with pytest.raises(WrongSetting, match=f"HOOKYARD_{missing} is not set"):
            role_settings(name)
        value = base64.b64encode(b"k" * 32).decode() if missing == "MASTER_KEY" else "redis://127.0.0.1:1/0"
        monkeypatch.setenv(f"HOOKYARD_{missing}", value)
    assert role_settings(name).database_url == database_url


@pytest.mark.parametrize("name", BINDS)
def test_an_address_that_is_taken_is_one_line(name: str, database_url: str, redis_url: str, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with role(name, database_url, redis_url, tmp_path, port) as process:
            assert process.wait(20) == 1
            assert process.stderr is not None
            (line,) = [text for text in process.stderr.read().decode().splitlines() if not text.startswith("{")]

    assert BINDS[name] in line
    assert str(port) in line
