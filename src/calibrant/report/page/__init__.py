"""The page: one self-contained HTML file that works offline."""

from calibrant.report.page.examples import Example, pick_examples
from calibrant.report.page.write import write_page

__all__ = ["Example", "pick_examples", "write_page"]
