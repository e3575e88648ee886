"""The chain of stages over one run directory: fit, fine-tune, predict, score, calibrate, select or rule; each once."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from lightning_fabric import Fabric
from torch import Tensor, nn

from calibrant import InputError
from calibrant.adapters.compiled import usable
from calibrant.calibrators import Calibrator
from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.detectors import OutlierScores
from calibrant.posteriors.deterministic import as_posterior
from calibrant.posteriors.ensemble import Ensemble
from calibrant.predictions import Predictions
from calibrant.runs.run import MemoryRun, Run
from calibrant.runs.stages import Stage
from calibrant.training import keys, ruling, selecting
from calibrant.training.calibrating import build_calibrator, calibrate_sets, fit_calibrator, kept_calibrator
from calibrant.training.checking import check_schemes
from calibrant.training.checkpoints import CheckpointStore
from calibrant.training.distributed import agree, make_fabric
from calibrant.training.loop import EpochRow
from calibrant.training.models import check_outputs, fresh_model, input_statistics
from calibrant.training.predicting import keep_predictions, kept_predictions, predict_sets
from calibrant.training.progress import row_listener
from calibrant.training.randomness import derive, seeded
from calibrant.training.snapshots import Saver
from calibrant.training.train_stage import StageTask, train_stage
from calibrant.training.training_data import Examples, TrainingData
from calibrant.training.validation import validate

MODEL = "model.safetensors"


class Workspace:
    """Trained models of any scheme on `data`; whatever is not in the run directory yet is made when it is asked for.

    Args:
        data: what to train, validate and test on.
        settings: all settings; `settings.seed` is the one seed.
        out: the run directory; None keeps everything in memory, and nothing is written.
        network: a module of your own in place of `settings.backbone`; it is copied, and its weights are the start.
        progress: show bars; None shows them on a terminal.
        on_epoch: told after every epoch which scheme is trained, and all rows of its metrics so far.
    """

    def __init__(
        self,
        data: TrainingData,
        settings: Settings,
        out: str | Path | None = None,
        *,
        network: nn.Module | None = None,
        fabric: Fabric | None = None,
        progress: bool | None = None,
        on_epoch: Callable[[Scheme, list[EpochRow]], None] | None = None,
    ) -> None:
        self.on_epoch = on_epoch
        self.data, self.settings, self.progress = data, settings, progress
        self.network = None if network is None else usable(network)
        self.run: Run | MemoryRun = MemoryRun() if out is None else Run(out)
        self.fabric = fabric or make_fabric(settings.engine)
        if out is None and self.fabric.world_size > 1:
            raise InputError("out must be given with several processes: they meet in the run directory")
        self._statistics = input_statistics(data.train, settings.data)
        check_outputs(self._fresh(Scheme()), data.train)
        build_calibrator(settings.calibrator)  # refuses wrong options before anything is trained

    def model(self, scheme: Scheme | str) -> nn.Module:
        """The trained network of `scheme`, in evaluation mode: a `Posterior` for Bayesian ones."""
        scheme = _unselective(scheme)
        model = self._fresh(scheme)
        model.load_state_dict(self._trained(scheme).tensors(MODEL))
        return model.to(self.fabric.device).eval()

    def ensemble(self, scheme: Scheme | str) -> Ensemble:
        """The members of `scheme` that predict: `posterior.members` draws, or the one network."""
        return as_posterior(self.model(scheme)).sample(self.settings.posterior.members, self._members_seed)

    def predictions(self, scheme: Scheme | str) -> dict[str, Predictions]:
        """Of `validation`, `test` and every OOD set; a selective scheme's with its scores and its selector's output."""
        return self.selection(scheme).predictions

    def selection(self, scheme: Scheme | str) -> selecting.Selection:
        """What decides for `scheme`, and its predictions: its selector, or else what `rule.name` says."""
        scheme = Scheme.parse(scheme)
        if scheme.selective:
            return self._selected(scheme)
        ruling.check_rule(self.settings, scheme, self.data)
        if self.settings.rule.name != "confidence" and ruling.enough(self.settings, len(self.data.validation)):
            return self._ruled(scheme)
        predictions = self._predicted(scheme)
        _, calibrator = self._calibrator(scheme, predictions)
        return selecting.confidence_selection(calibrate_sets(calibrator, predictions), calibrator)

    def history(self, scheme: Scheme | str) -> list[dict[str, float]]:
        """The metrics of the fit or fine-tune of `scheme`, one row per epoch."""
        return self._trained(_unselective(scheme)).rows()

    def validation(self, scheme: Scheme | str) -> dict[str, float]:
        """Accuracy, cross-entropy and ECE of the whole ensemble on validation data; no other data is looked at."""
        scheme = _unselective(scheme)
        stage = self.validation_stage(scheme)
        if not agree(stage.finished, self.fabric):
            model = self.model(scheme)
            with self._held(stage) as to_do:
                if to_do:
                    found = validate(
                        model,
                        self.data.validation,
                        self.fabric,
                        members=stage.inputs["members"],
                        seed=self._members_seed,
                        bins=self.settings.report.bins,
                    )
                    if self.fabric.is_global_zero:
                        stage.finish(found)
        return {name: float(value) for name, value in stage.result.items()}

    def validation_stage(self, scheme: Scheme | str) -> Stage:
        """The stage of the measures on validation data, run or not; of equal keys for what must measure the same."""
        scheme = _unselective(scheme)
        members = self.settings.posterior.members if scheme.bayesian else 1
        inputs = keys.validate_inputs(self.stage(scheme).key, members, self.settings.report.bins)
        return self.run.stage(f"validate-{scheme}", inputs)

    def with_settings(self, *overrides: str) -> Workspace:
        """The same data and run directory with `key.sub=value` overrides."""
        changed = copy.copy(self)
        changed.settings = self.settings.with_(*overrides)
        return changed

    def check(self, *schemes: Scheme | str) -> list[Scheme]:
        """`schemes`, refused where settings, options or data do not fit them, before anything is trained."""
        wanted = [Scheme.parse(scheme) for scheme in schemes]
        check_schemes(wanted, self.data, self.settings)
        with seeded(0):
            for scheme in wanted:
                self._fresh(scheme)  # refuses options of the posterior that do not fit
        return wanted

    def train(self, *schemes: Scheme | str) -> dict[str, dict[str, Predictions]]:
        """Run every stage that `schemes` need; returns their predictions by name.

        Selective schemes go first, because their predictions serve the others too.
        """
        wanted = self.check(*schemes)
        if self.fabric.is_global_zero:
            self.run.describe(self.settings, self.data.splits_json())
        found = {str(s): self.predictions(s) for s in sorted(wanted, key=lambda s: not s.selective)}
        return {str(scheme): found[str(scheme)] for scheme in wanted}

    def stage(self, scheme: Scheme | str) -> Stage:
        """The fit or fine-tune of `scheme`, run or not: its folder, key, metrics and result."""
        scheme = _unselective(scheme)
        if scheme.parent is None:
            return self.run.stage(f"fit-{scheme}", keys.fit_inputs(scheme, self.settings, self.data, self.network))
        parent = self.stage(scheme.parent).key
        return self.run.stage(f"fine-tune-{scheme}", keys.finetune_inputs(scheme, self.settings, self.data, parent))

    def _predicted(self, scheme: Scheme) -> dict[str, Predictions]:
        """The predictions of an unselective `scheme` on every set."""
        stage = self._predict_stage(scheme)
        if not agree(stage.finished, self.fabric):
            ensemble, about = self.ensemble(scheme), str(scheme)
            with self._held(stage) as to_do:
                if to_do and self.fabric.is_global_zero:
                    made = predict_sets(ensemble, self.data, self.settings, about=about, progress=self.progress)
                    return keep_predictions(stage, made)
        return kept_predictions(stage, self.data)

    def _scored(self, scheme: Scheme) -> tuple[Stage, selecting.Scored]:
        """The predictions of an unselective `scheme` with their outlier scores, and the stage that holds these.

        The passes over the data that score also predict, so the predict stage is written along, if it is missing.
        """
        predicted = self._predict_stage(scheme)
        settings, progress = self.settings, self.progress
        stage = self.run.stage(f"score-{scheme}", keys.score_inputs(settings, predicted.key))
        if not agree(stage.finished, self.fabric):
            ensemble = self.ensemble(scheme)
            with self._held(predicted) as predict_too, self._held(stage) as to_do:
                if to_do and self.fabric.is_global_zero:
                    made = selecting.score_sets(ensemble, self.data, settings, about=stage.name, progress=progress)
                    if predict_too:
                        keep_predictions(predicted, made.predictions)
                    return stage, selecting.keep_scores(stage, made)
            kept = kept_predictions(predicted, self.data)  # no rank waits for another here
            return stage, selecting.kept_scores(stage, kept)
        return stage, selecting.kept_scores(stage, self._predicted(scheme))

    def _calibrator(
        self, scheme: Scheme, predictions: dict[str, Predictions], part: Tensor | None = None
    ) -> tuple[str | None, Calibrator | None]:
        """The key and the result of the stage that calibrates an unselective `scheme`, if one does.

        It is fitted to the validation examples at `part`, all by default.
        """
        calibrator = build_calibrator(self.settings.calibrator)
        if calibrator is None:
            return None, None
        parent, size = self._predict_stage(scheme).key, None if part is None else len(part)
        stage = self.run.stage(f"calibrate-{scheme}", keys.calibrate_inputs(self.settings, parent, size))
        with self._held(stage) as to_do:
            if to_do and self.fabric.is_global_zero:
                held_out = predictions["validation"]
                return stage.key, fit_calibrator(stage, calibrator, held_out if part is None else held_out[part])
        return stage.key, kept_calibrator(stage, self.settings.calibrator.name)

    def _selected(self, scheme: Scheme) -> selecting.Selection:
        """What decides for a selective `scheme`: the paper's selector."""
        settings = self.settings
        scored_stage, scored = self._scored(_unselective(scheme))
        key, calibrator = self._calibrator(_unselective(scheme), scored.predictions)
        selector = selecting.build_selector(settings.selector, settings.seed)
        scored = selecting.calibrate_scored(calibrator, scored, selector)
        needed = "outliers" in selector.objective.needs
        outliers = ruling.selector_outliers(self.data, settings, scheme) if needed else None
        stage = self.run.stage(f"select-{scheme}", keys.select_inputs(settings, scored_stage.key, key, outliers))
        if not agree(stage.finished, self.fabric):
            say = self._outlier_predictor(_unselective(scheme), scored.scorer, calibrator) if needed else None
            with self._held(stage) as to_do:
                if to_do and self.fabric.is_global_zero:
                    said = None if say is None or outliers is None else say(outliers)
                    fitted = selecting.fit_selector(stage, settings.selector, scored, settings.seed, said)
                    return selecting.selection_of(fitted, scored, calibrator)
        return selecting.selection_of(selecting.kept_selector(stage), scored, calibrator)

    def _ruled(self, scheme: Scheme) -> selecting.Selection:
        """What decides for an unselective `scheme` whose answers a rule accepts."""
        settings, reading = self.settings, copy.copy(self)
        reading.settings = ruling.reading_rule(settings, self._fresh(Scheme()))
        outliers = ruling.rule_outliers(self.data, settings)
        scored_stage, scored = reading._scored(scheme)
        part = ruling.fitting_part(settings, len(self.data.validation))
        key, calibrator = self._calibrator(scheme, scored.predictions, part)
        predictions = calibrate_sets(calibrator, scored.predictions)
        inputs = keys.rule_inputs(settings, scored_stage.key, key, outliers.fitting, outliers.certifying)
        stage = self.run.stage(f"rule-{scheme}", inputs)
        if not agree(stage.finished, self.fabric):
            say = self._outlier_predictor(scheme, scored.scorer, calibrator)
            with self._held(stage) as to_do:
                if to_do and self.fabric.is_global_zero:
                    names, held_out = scored.scorer.scores, predictions["validation"]
                    fitted = ruling.fit_rule(stage, settings, held_out, names, outliers, say)
                    return ruling.rule_selection(*fitted, scored.scorer, predictions, calibrator)
        return ruling.rule_selection(*ruling.kept_rule(stage), scored.scorer, predictions, calibrator)

    def _outlier_predictor(
        self, scheme: Scheme, scorer: OutlierScores, calibrator: Calibrator | None
    ) -> Callable[[Examples], Predictions]:
        """What says what `scheme` makes of outliers, with their scores."""
        return partial(ruling.predict_outliers, self.ensemble(scheme), scorer, calibrator, settings=self.settings)

    def _predict_stage(self, scheme: Scheme) -> Stage:
        inputs = keys.predict_inputs(scheme, self.settings, self.data, self.stage(scheme).key)
        return self.run.stage(f"predict-{scheme}", inputs)

    @contextlib.contextmanager
    def _held(self, stage: Stage) -> Iterator[bool]:
        """Hold `stage` (rank 0 does, for all) and say whether it is still to be run; all ranks leave together."""
        if agree(stage.finished, self.fabric):
            yield False
            return
        with stage.locked() if self.fabric.is_global_zero else contextlib.nullcontext():
            yield not agree(stage.finished, self.fabric)
            self.fabric.barrier()

    def _trained(self, scheme: Scheme) -> Stage:
        """The finished fit or fine-tune of `scheme`."""
        if scheme.ocm:
            self.data.outliers_for(scheme)
        stage = self.stage(scheme)
        if not agree(stage.finished, self.fabric):
            start = None if scheme.parent is None else self.model(scheme.parent)
            with self._held(stage) as to_do:
                if to_do:
                    self._run(scheme, stage, self._fresh(scheme) if start is None else start)
        return stage

    def _run(self, scheme: Scheme, stage: Stage, model: nn.Module) -> None:
        engine = self.settings.engine
        store = None if stage.path is None else CheckpointStore(stage.path)
        task = StageTask(
            model,
            self.data,
            scheme,
            self.settings,
            self.fabric,
            seed=self.settings.seed,
            saver=Saver(store, seconds=engine.checkpoint_seconds, steps=engine.checkpoint_steps) if store else None,
            on_epoch=self._listener(scheme, stage),
            progress=self.progress,
        )
        rows = train_stage(task)
        if self.fabric.is_global_zero:
            stage.finish({"scheme": str(scheme), **rows[-1]}, {MODEL: model.state_dict()}, rows)
            if store is not None:
                store.clear()

    @property
    def _members_seed(self) -> int:
        return derive(self.settings.seed, "members") >> 1

    def _listener(self, scheme: Scheme, stage: Stage) -> Callable[[list[EpochRow]], None]:
        """What hears of the rows after every epoch: the files of the stage, if it has any, and `on_epoch`."""
        told = None if self.on_epoch is None else partial(self.on_epoch, scheme)
        return row_listener(stage.path, told, tensorboard=self.settings.engine.tensorboard)

    def _fresh(self, scheme: Scheme) -> nn.Module:
        """The untrained model of `scheme`: the same weights for all of them."""
        return fresh_model(self.data.train, scheme, self.settings, self._statistics, self.network)


def _unselective(scheme: Scheme | str) -> Scheme:
    return replace(Scheme.parse(scheme), selective=False)
