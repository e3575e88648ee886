"""A real browser for tests of the page, where there is one."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run"]

needs_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed: apt-get install chromium"),
]


class Visit:
    """A page that is open: what it asked for and what it complained about."""

    def __init__(self, page: Any) -> None:
        self.page, self.requests, self.complaints = page, [], []
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("console", lambda message: self.complaints.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))

    def move(self, percent: int) -> None:
        """Put the slider to `percent` and wait until everything has followed."""
        self.page.locator("#coverage").fill(str(percent))
        self.until(f"document.getElementById('wanted').textContent === '{percent} %'")

    def until(self, expression: str, argument: Any = None) -> None:
        """Wait until JavaScript is true; the page forbids the eval that Playwright's own waiting needs."""
        for _ in range(400):
            if self.page.evaluate(expression, argument):
                return
            self.page.wait_for_timeout(25)
        raise AssertionError(f"it never came true: {expression}")

    def number(self, key: str, system: str | None = None) -> float:
        """What the table shows of the chosen system, or of `system`; NaN for a dash."""
        row = "tr.chosen" if system is None else f'tr[data-system="{system}"]'
        value = self.page.locator(f"#table {row} td[data-key={key}]").get_attribute("data-value")
        return float(value) if value else math.nan


@contextmanager
def opened(path: Path, **options: Any) -> Iterator[Visit]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            visit = Visit(browser.new_context(**options).new_page())
            visit.page.goto(path.as_uri())
            visit.page.wait_for_selector("html[data-ready]", timeout=60_000)
            yield visit
        finally:
            browser.close()
