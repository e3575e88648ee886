"""A real browser for tests of the page, where there is one."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
FLAGS += ["--disable-sync", "--no-first-run"]

INSTALL = (
    *(() if CHROMIUM else ("no Chromium on the PATH: apt-get install chromium, or install Google Chrome",)),
    *(() if find_spec("playwright") else ("no Playwright: pip install playwright",)),
)

needs_browser = [
    pytest.mark.browser,
    pytest.mark.skipif(bool(INSTALL), reason="the page was not opened in a browser; " + "; ".join(INSTALL)),
]

CONTRAST = """() => {
  const parse = (color) => (color.match(/[\\d.]+/g) || []).map(Number);
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (node) => {
    for (; node; node = node.parentElement) {
      const color = parse(getComputedStyle(node).backgroundColor);
      if (color.length === 3 || color[3] > 0.9) return color;
    }
    return [255, 255, 255];
  };
  const hasText = (node) => [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
  const seen = (node) => node.getClientRects().length && !node.closest("noscript, script, .hidden, option");
  return [...document.querySelectorAll("body *")].filter((node) => seen(node) && hasText(node)).map((node) => {
    const style = getComputedStyle(node), inside = node.namespaceURI.endsWith("svg");
    const pair = [light(parse(inside ? style.fill : style.color)), light(ground(node))].sort((a, b) => b - a);
    return [(pair[0] + 0.05) / (pair[1] + 0.05), node.tagName + " " + node.textContent.slice(0, 40)];
  }).filter(([ratio]) => ratio < 4.5);
}"""  # the texts whose contrast is below AA


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
def opened(path: Path, *, ready: str = "html[data-ready]", **options: Any) -> Iterator[Visit]:
    """The page at `path`, once there is what the selector `ready` finds."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        try:
            visit = Visit(browser.new_context(**options).new_page())
            visit.page.goto(path.as_uri())
            visit.page.wait_for_selector(ready, timeout=60_000)
            yield visit
        finally:
            browser.close()
