"""A town, and a browser that looks at it. Without driver or browser nothing here is collected."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from tests.acceptance.product import Product
from tests.browser.town import TOKEN, Town, receiver, settle

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

CHROMIUM = shutil.which("chromium")
try:
    from playwright.sync_api import sync_playwright
except ImportError:
    CHROMIUM = None
collect_ignore_glob = [] if CHROMIUM else ["test_*.py"]

Open = Callable[..., "Page"]


@pytest.fixture(scope="session")
def town() -> Iterator[Town]:
    with tempfile.TemporaryDirectory(prefix="hookyard-test-", ignore_cleanup_errors=True) as name:
        Path(name).chmod(0o755)  # the embedded servers run as an unprivileged user
        product = Product(Path(name), LEASE_SECONDS="2", ADMIN_TOKEN=TOKEN)
        answers: dict[str, tuple[int, str]] = {}
        receiving = receiver(answers)
        Thread(target=receiving.serve_forever, daemon=True).start()
        made = None
        try:
            product.start()
            made = settle(product, answers, receiving.server_port)
            yield made
        finally:
            if made is not None:
                made.store.close()
            product.destroy()
            receiving.shutdown()
            receiving.server_close()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Browser, town: Town) -> Iterator[Open]:
    """Opens a page as the holder of a token, in a browser of its own. What the console complains of fails the test."""
    complaints: list[str] = []
    contexts = []

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "status of 4" not in message.text:
            complaints.append(message.text)

    def open_(path: str = "/", token: str = TOKEN, **options: Any) -> Page:
        context = browser.new_context(base_url=town.url, **{"viewport": {"width": 1280, "height": 900}} | options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
        page.on("console", hear)
        page.on("pageerror", lambda problem: complaints.append(str(problem)))
        page.goto("/login")
        page.get_by_label("Token").fill(token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/")
        if path != "/":
            page.goto(path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
