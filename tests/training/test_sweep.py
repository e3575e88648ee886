"""A sweep in this process: its trials are ordinary fits, the rule picks, it goes on after a stop, failures are told."""

import csv
import json
import shutil
from dataclasses import replace

import pytest
import torch
from sweeps import settings, six_trials
from typer import Typer
from typer.testing import CliRunner

from calibrant.cli import sweep as command
from calibrant.config.schemes import Scheme
from calibrant.files import RunError
from calibrant.runs.executor import Serial
from calibrant.training import Workspace, open_data, select_lambda
from calibrant.training.sweeps import sweep as sweep_module
from calibrant.training.sweeps.grid import Parameter, Sweep
from calibrant.training.sweeps.record import SweepResult, TrialRow
from calibrant.training.sweeps.sweep import check_finished, run_sweep


def sweep_of(text, scheme="CBNN", *overrides):
    return Sweep(settings("fit.epochs=2", *overrides), Scheme.parse(scheme), (Parameter.parse(text),))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("sweep")
    return out, run_sweep(six_trials(), out, Serial(threads=1))


def test_a_sweep_of_lambda_is_the_papers_selection(finished):
    out, result = finished
    chosen = settings("fit.epochs=2")
    space = Workspace(open_data(chosen.data, 0), chosen, out, progress=False)
    expected = select_lambda(space, "CBNN", grid=[0.5, 1, 1.5, 2, 2.5, 3])
    assert [(row.accuracy, row.ece) for row in result.trials] == [(t.accuracy, t.ece) for t in expected.trials]
    assert (result.baseline.accuracy, result.baseline.ece) == (expected.baseline.accuracy, expected.baseline.ece)
    assert result.winner.params.get("lambda", 0.0) == expected.weight
    assert len(list((out / "stages").glob("fit-*"))) == 7


def test_what_is_written_is_what_was_found(finished):
    out, result = finished
    assert SweepResult.load(out) == result
    rows = list(csv.DictReader((out / "sweep.csv").read_text().splitlines()))
    assert [row["lambda"] for row in rows] == ["", "0.5", "1", "1.5", "2", "2.5", "3"]
    assert [float(row["ece"]) for row in rows] == [row.ece for row in result.rows()]
    record = json.loads((out / "sweep.json").read_text())
    assert record["winner"] == {"name": result.winner.name, "overrides": list(result.overrides)}
    assert (out / "pareto.png").read_bytes()[:4] == b"\x89PNG"
    assert not list(out.rglob("*.tmp"))


def test_finished_trials_are_not_run_again_and_a_finer_grid_adds_to_them(finished, monkeypatch, tmp_path):
    out, result = shutil.copytree(finished[0], tmp_path / "copy"), finished[1]
    ran = []
    run_trial = sweep_module.run_trial
    monkeypatch.setattr(sweep_module, "run_trial", lambda fit, send: ran.append(fit.name) or run_trial(fit, send))
    assert run_sweep(six_trials(), out, Serial(threads=1)).rows() == result.rows()
    assert ran == []
    finer = run_sweep(sweep_of("lambda=0.5,0.75"), out, Serial(threads=1))
    assert ran == ["lambda=0.75"]
    assert finer.trials[0] == result.trials[0]


def trial(name, value, accuracy, ece, state="finished"):
    return TrialRow(name, {"lambda": value}, name, state, 1, accuracy, ece, 0.0)


def test_the_rule_and_what_takes_no_part_in_it():
    base = TrialRow("baseline", {}, "b", "finished", 1, 0.80, 0.10, 0.0)
    rows = (trial("b", 2, 0.79, 0.05), trial("a", 1, 0.79, 0.05), trial("c", 3, 0.70, 0.01))
    stopped = trial("d", 4, None, None, "stopped")
    result = SweepResult(sweep_of("lambda=2,1,3,4"), base, (*rows, stopped))
    assert result.winner.name == "a"  # of equal ECEs the smaller lambda; 3 costs too much accuracy
    assert replace(result, trials=(rows[2], stopped)).winner == base
    assert replace(result, baseline=replace(base, accuracy=None, state="failed")).winner is None


def test_a_parameter_that_changes_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="are the same to the network of CBNN"):
        run_sweep(sweep_of("selector.eta=0.1,0.2"), tmp_path, Serial(threads=1))
    assert not (tmp_path / "sweep.json").exists()


def test_data_can_be_swept(tmp_path):
    result = run_sweep(sweep_of("data.train=64,80", "FNN"), tmp_path, Serial(threads=1))
    assert {row.state for row in result.rows()} == {"finished"}
    assert len(list((tmp_path / "stages").glob("fit-FNN-*"))) == 3


def test_a_diverged_trial_fails_alone_and_at_once(tmp_path):
    result = run_sweep(sweep_of("fit.rate=0.1,1e30", "FNN"), tmp_path, Serial(retries=3))
    assert [row.state for row in result.trials] == ["finished", "failed"]
    assert "diverged" in result.trials[1].reason
    assert result.trials[1].attempts == 1  # it would only diverge again
    with pytest.raises(RunError, match=r"1 of 3 trials failed, first fit.rate=1e\+30: training diverged"):
        check_finished(result, "again")


def test_an_unexpected_failure_is_tried_again(tmp_path, monkeypatch):
    def flaky(fit, send):
        if fit.name == "lambda=1" and not seen:
            seen.append(fit.name)
            raise OSError("the disk went away")
        return run_trial(fit, send)

    seen, run_trial = [], sweep_module.run_trial
    monkeypatch.setattr(sweep_module, "run_trial", flaky)
    assert run_sweep(sweep_of("lambda=1"), tmp_path / "a", Serial(retries=1)).trials[0].state == "finished"
    seen.clear()
    failed = run_sweep(sweep_of("lambda=1"), tmp_path / "b", Serial(retries=0)).trials[0]
    assert (failed.state, failed.reason) == ("failed", "OSError: the disk went away")
    assert run_sweep(sweep_of("lambda=1"), tmp_path / "b", Serial(threads=1)).trials[0].state == "finished"


def test_the_number_of_threads_is_put_back(tmp_path):
    before = torch.get_num_threads()
    run_sweep(sweep_of("lambda=1"), tmp_path, Serial(threads=2))
    assert torch.get_num_threads() == before


def scores(out, scheme, *overrides):
    """The steps and values that a trial sends, and the history of its network."""
    sweep = Sweep(settings(*overrides), Scheme.parse(scheme), (Parameter.parse("rate=0.1"),))
    (fit,) = sweep_module._fits(sweep, out)[1:]
    sent = []
    sweep_module.run_trial(fit, sent.append)
    history = Workspace(open_data(fit.settings.data, 0), fit.settings, out, progress=False).history(scheme)
    return [(score.step, score.value) for score in sent], [(r["epoch"], r["validation_cross_entropy"]) for r in history]


def test_a_trial_sends_a_score_per_epoch(tmp_path):
    sent, expected = scores(tmp_path, "FNN", "fit.epochs=3")
    assert sent == expected
    assert [step for step, _ in sent] == [1, 2, 3]
    again, _ = scores(tmp_path, "FNN", "fit.epochs=3")
    assert again == []  # nothing was left to train


def test_only_the_stage_that_a_trial_is_about_sends_scores(tmp_path):
    sent, expected = scores(tmp_path, "FNN-OCM", "fit.epochs=3", "finetune.epochs=2")
    assert sent == expected
    assert [step for step, _ in sent] == [1, 2]


def test_a_trial_that_resumes_sends_the_scores_of_earlier_attempts_too(tmp_path, monkeypatch):
    saved = sweep_module.Workspace.validation

    def killed(workspace, scheme):
        listen = workspace.on_epoch

        def die(scheme, rows):
            if len(rows) == 2:
                raise KeyboardInterrupt
            listen(scheme, rows)

        workspace.on_epoch = die
        return saved(workspace, scheme)

    with monkeypatch.context() as patch:
        patch.setattr(sweep_module.Workspace, "validation", killed)
        with pytest.raises(KeyboardInterrupt):
            scores(tmp_path, "FNN", "fit.epochs=3", "engine.checkpoint_steps=1")
    sent, expected = scores(tmp_path, "FNN", "fit.epochs=3", "engine.checkpoint_steps=1")
    assert sent == expected


def test_a_folder_that_a_node_does_not_have_is_named(tmp_path):
    (fit, *_) = sweep_module._fits(sweep_of("lambda=1"), tmp_path / "out")
    with pytest.raises(RunError, match="put --out into a folder that all nodes share"):
        sweep_module.run_trial(replace(fit, out=tmp_path / "elsewhere"), print)


def test_a_sweep_that_is_not_there_or_was_altered(tmp_path):
    with pytest.raises(ValueError, match="holds no sweep"):
        SweepResult.load(tmp_path)
    (tmp_path / "sweep.json").write_text('{"scheme": "CBNN"}')
    with pytest.raises(RunError, match="was altered"):
        SweepResult.load(tmp_path)


def invoke(*arguments):
    app = Typer()
    app.command()(command.command)
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_command_resumes_from_its_record(finished):
    out, result = finished
    found = invoke("--resume", "--out", out, "--json")
    assert found.exit_code == 0, found.output
    record = json.loads(found.stdout[found.stdout.index("{") :])
    assert record["winner"] == result.winner.name
    assert [row["accuracy"] for row in record["trials"]] == [row.accuracy for row in result.rows()]
    assert "lambda=0.5" in invoke("--resume", "--out", out).output


@pytest.mark.parametrize(
    ("options", "match"),
    [
        (["--asha"], "--asha needs --engine ray"),
        (["--address", "auto"], "--address needs --engine ray"),
        (["--resources", "gpu=1"], "other than cpu need --engine ray"),
        (["--engine", "spark"], "there are local and ray"),
        ([], "param is missing"),
    ],
)
def test_wrong_questions(tmp_path, options, match):
    found = invoke("--out", tmp_path, *options)
    assert isinstance(found.exception, ValueError)
    assert match in str(found.exception)


def test_a_sweep_goes_on_elsewhere(finished, tmp_path):
    out = shutil.copytree(finished[0], tmp_path / "copy")
    assert invoke("--resume", "--out", out, "--device", "cpu").exit_code == 0
    assert SweepResult.load(out).winner == finished[1].winner
    missing = invoke("--resume", "--out", out, "--device", "cuda:99")
    assert missing.exit_code != 0
    assert "is not there" in str(missing.exception)
