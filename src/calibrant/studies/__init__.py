"""The paper's studies: run on any profile, and drawn again from their records. Only the command line imports them.

May import: files, slots, metrics, predictions, posteriors, calibrators, detectors, selective, data, backbones, config,
evaluation, report, runs, training.
"""

from calibrant.studies.claims_page import write_claims
from calibrant.studies.lab import Lab
from calibrant.studies.plan import StudyPlan, load_plan
from calibrant.studies.registry import STUDIES
from calibrant.studies.reproduction import draw, open_lab, redraw, reproduce

__all__ = ["STUDIES", "Lab", "StudyPlan", "draw", "load_plan", "open_lab", "redraw", "reproduce", "write_claims"]
