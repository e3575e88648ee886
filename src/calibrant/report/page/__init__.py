"""The page: one self-contained HTML file that works offline."""

from calibrant.report.page.examples import Example, pick_examples
from calibrant.report.page.sections import Certified, Section
from calibrant.report.page.write import write_page

__all__ = ["Certified", "Example", "Section", "pick_examples", "write_page"]
