"""What a sweep tries: how values are read, which trials they make, what is refused."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import settings as limits
from hypothesis import strategies as st

from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.runs.resources import Resources
from calibrant.training.sweeps.grid import Parameter, Sweep


def sweep(scheme, *params):
    return Sweep(Settings(), Scheme.parse(scheme), tuple(Parameter.parse(text) for text in params))


def test_the_papers_grid_can_be_written_with_dots():
    grid = Parameter.parse("lambda=0.2,0.4,...,1,2,...,10").values
    assert grid == Settings().calibration.grid


@given(st.integers(-50, 50), st.integers(1, 9), st.integers(2, 30))
@limits(deadline=None, max_examples=50)
def test_dots_are_an_exact_progression(start, step, count):
    values = [round((start + step * k) / 10, 1) for k in range(count + 1)]
    text = f"x={values[0]},{values[1]},...,{values[-1]}"
    assert [float(value) for value in Parameter.parse(text).values] == values


def test_values_are_yaml():
    assert Parameter.parse("fit.schedule=step,cosine").values == ("step", "cosine")
    assert Parameter.parse("a.b=[1, 2],[3]").values == ([1, 2], [3])
    assert Parameter.parse("fit.rate=1e-3,true").values == (0.001, True)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("lambda", "must look like"),
        ("=1", "must look like"),
        ("lambda=", "must look like"),
        ("lambda=1,,2", "must look like"),
        ("lambda={", "must look like"),
        ("lambda=1,2,1", "value 1 twice"),
        ("lambda=...,3", "two numbers before the dots"),
        ("lambda=1,2,...", "two numbers before the dots"),
        ("lambda=1,3,...,8", "does not reach 8"),
        ("lambda=1,2,...,2", "does not reach 2"),
        ("lamda=1,2", "there is no setting lamda; did you mean lambda?"),
    ],
)
def test_what_is_no_list_of_values_is_refused(text, match):
    with pytest.raises(ValueError, match=match):
        Parameter.parse(text)


def test_every_combination_is_a_trial_with_its_own_settings():
    found = sweep("CBNN-OCM", "lambda=1,2", "gamma=0.1,0.5,0.9").trials()
    pairs = [(trial.params["lambda"], trial.params["gamma"]) for trial in found]
    assert pairs == list(product((1, 2), (0.1, 0.5, 0.9)))
    last = Settings().with_(*found[-1].overrides)
    assert (last.calibration.weight.bayesian, last.finetune.gamma) == (2.0, 0.9)
    assert last.calibration.weight.frequentist == Settings().calibration.weight.frequentist
    assert len({trial.name for trial in found}) == 6


def test_the_baseline_is_lambda_0_where_the_regularizer_is_swept():
    assert sweep("SCBNN-OCM", "lambda=1").baseline().scheme == "SBNN-OCM"
    assert sweep("CFNN", "calibration.regularizer=mmce,esd").baseline().scheme == "FNN"
    assert sweep("CBNN-OCM", "gamma=0.1,0.2").baseline().scheme == "CBNN-OCM"


@pytest.mark.parametrize(
    ("scheme", "params", "match"),
    [
        ("BNN", ["lambda=1,2"], "BNN has no calibration regularizer"),
        ("CBNN", [], "param is missing"),
        ("CBNN", ["lambda=1", "calibration.weight.bayesian=2"], "given twice"),
        ("CBNN", ["fit.rat=0.1"], "did you mean fit.rate"),
        ("CBNN", ["lambda=-1"], "cannot be -1"),
    ],
)
def test_what_cannot_be_swept_is_refused(scheme, params, match):
    with pytest.raises(ValueError, match=match):
        sweep(scheme, *params)


def test_resources_are_named_numbers():
    assert Resources.parse(None) == Resources(1, 0.0, {})
    assert Resources.parse("cpu=4,gpu=1,tpu=2") == Resources(4, 1.0, {"tpu": 2.0})
    assert Resources.parse("tpu=2").for_ray() == {"num_cpus": 1, "num_gpus": 0.0, "resources": {"tpu": 2.0}}


@pytest.mark.parametrize("text", ["cpu", "cpu=x", "cpu=0", "cpu=1.5", "gpu=-1", "=2", "gpu=nan"])
def test_other_resources_are_refused(text):
    with pytest.raises(ValueError, match="resources"):
        Resources.parse(text)
