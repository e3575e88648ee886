import subprocess
import sys

import pytest

from calibrant.config.schemes import Scheme


def test_sixteen_schemes_have_sixteen_names_and_parse_back():
    names = [str(scheme) for scheme in Scheme.all()]
    assert len(set(names)) == 16
    assert [Scheme.parse(name) for name in names] == list(Scheme.all())
    assert Scheme.parse(" scbnn-ocm ") == Scheme(True, True, True, True)
    assert Scheme.parse(Scheme(True)) == Scheme(True)


def test_chains_share_four_fits_and_four_fine_tunes():
    links = {link for scheme in Scheme.all() for link in scheme.chain}
    assert sum(link.parent is None for link in links) == 4
    assert sum(link.ocm and not link.selective for link in links) == 4
    assert sum(link.selective for link in links) == 8
    assert [str(link) for link in Scheme.parse("SFNN").chain] == ["FNN", "SFNN"]
    assert str(Scheme.parse("SCBNN-OCM").base) == "CBNN"
    assert Scheme.parse("BNN").family == "bayesian"


@pytest.mark.parametrize(("wrong", "right"), [("CBNN-OMC", "CBNN-OCM"), ("SNN", "SFNN|SBNN"), ("sbn", "SBNN")])
def test_wrong_name_is_answered_with_a_near_one(wrong, right):
    with pytest.raises(ValueError, match=f"did you mean ({right})"):
        Scheme.parse(wrong)


def test_schemes_and_settings_do_not_import_torch():
    code = "import calibrant.config.loading, calibrant.runs.stages, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
