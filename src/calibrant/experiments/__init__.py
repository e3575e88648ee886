"""The paper's studies: run on any profile, and drawn again from their records."""

from calibrant.experiments.claims_page import write_claims
from calibrant.experiments.lab import Lab
from calibrant.experiments.plan import Plan, load_plan
from calibrant.experiments.registry import STUDIES
from calibrant.experiments.reproduce import draw, open_lab, redraw, reproduce

__all__ = ["STUDIES", "Lab", "Plan", "draw", "load_plan", "open_lab", "redraw", "reproduce", "write_claims"]
