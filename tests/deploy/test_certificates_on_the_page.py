"""What was certified of a predictor is said by `info` and on the page, in the same sentence."""

from __future__ import annotations

import json
import re
from pathlib import Path

from calibrant.config.loading import load_settings
from calibrant.deploy import load
from calibrant.deploy.pipeline import train_run
from calibrant.deploy.reporting import report_page
from calibrant.deploy.saving import describe
from calibrant.runs.run import Run

OPTIONS = ("fit.epochs=4", "backbone.name=mlp-32", "outliers.max_points=200", "report.resamples=20")
RULE = ("calibrator.name=temperature", "rule.name=trust", "rule.max_error=0.2", "rule.max_outliers=0.3")


def test_the_page_shows_the_certificate_that_the_predictor_holds(tmp_path: Path) -> None:
    train_run(load_settings(overrides=[*OPTIONS, *RULE]), ["FNN"], tmp_path, progress=False)
    run = Run(tmp_path)
    certificate = load(run.predictor_path("FNN")).certificate
    assert certificate is not None
    assert describe(run.predictor_path("FNN"))["certificate"] == certificate.sentence()
    page = report_page([run], tmp_path / "page.html").read_text()
    found = re.search(r'id="payload">(.*?)</script>', page, re.DOTALL)
    assert found
    (told,) = json.loads(found[1])["certificates"]["FNN"]
    assert told["sentence"] == certificate.sentence()
    assert told["certified"] is (certificate.threshold is not None)
    assert told["threshold"] == certificate.threshold
