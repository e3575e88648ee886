import math

import pytest
import yaml
from pydantic import BaseModel

from calibrant.config import dependence
from calibrant.config.dependence import identity
from calibrant.config.loading import Settings, load_settings, profiles, setting_names
from calibrant.config.values import ByFamily


@pytest.mark.parametrize("profile", profiles())
def test_profiles_load_and_survive_a_round_trip_through_yaml(profile, tmp_path):
    settings = load_settings(profile)
    file = tmp_path / "settings.yaml"
    file.write_text(settings.to_yaml())
    assert load_settings(file=file) == settings
    assert settings.profile == profile


def test_paper_profile_is_the_text():
    paper = load_settings("paper")
    assert math.isclose(paper.posterior.prior_std**2, 0.001)
    assert (paper.fit.rate, paper.fit.batch_size, paper.fit.epochs, paper.fit.weight_decay) == (0.1, 128, 100, 0)
    assert (paper.fit.schedule, paper.fit.step_every, paper.fit.step_factor) == ("step", 30, 5)
    assert math.ceil(paper.finetune.examples_per_epoch / paper.finetune.batch_size) == 282
    assert (paper.finetune.gamma, paper.finetune.outlier_batch_size, paper.posterior.members) == (0.5, 64, 20)
    assert paper.calibration.weight.of("frequentist") == 4
    assert paper.calibration.weight.of("bayesian") == 0.8
    assert len(paper.calibration.grid) == 14


def test_code_profile_is_the_published_code_on_means():
    code = load_settings("paper-code")
    assert code.fit.rate == pytest.approx(0.1 * 128)
    assert code.fit.clip_norm.of("bayesian") == code.fit.clip_norm.of("frequentist") == 2 / 128
    assert code.finetune.rate == pytest.approx(0.001 * 32)
    assert code.finetune.clip_norm.of("frequentist") is None
    assert code.finetune.clip_norm.of("bayesian") == 4 / 32
    assert code.finetune.gamma == 0.5 * 64 / 32
    assert (code.finetune.beta_factor, code.finetune.kl_examples) == (0.8, 9000)
    assert (code.posterior.prior_std, code.posterior.init_std) == (0.001, 0.001)
    assert code.outliers.scores == ("neighbors", "density", "svm", "forest", "lof")
    assert (code.outliers.neighbor_distance, code.outliers.bandwidth, code.selector.entropy) == ("mean", 1.0, True)
    assert (code.outliers.average, code.outliers.max_points, code.outliers.neighbors) == ("features", 20_000, 8)
    assert (code.selector.variant, code.selector.threshold, code.selector.eta) == ("authors_code", "test", 0.01)
    assert (code.calibration.regularizer, code.fit.extra_step, code.finetune.extra_step) == (
        "weighted_mmce_code", True, True,
    )  # fmt: skip
    assert (code.calibration.weight.of("frequentist"), code.calibration.weight.of("bayesian")) == (3, 0.8)
    assert (code.data.mean, code.data.std) == ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))


def test_settings_that_came_later_change_no_key_at_their_defaults():
    paper, counted = load_settings("paper").model_dump(mode="json"), identity(load_settings("paper"))
    for group in ("outliers", "selector"):
        assert set(counted[group]) == dependence.FIRST[group] < set(paper[group])
    assert identity(load_settings("paper-code"))["outliers"]["bandwidth"] == 1.0


def test_order_is_profile_then_file_then_overrides(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"fit": {"rate": 0.5, "epochs": 7}}))
    settings = load_settings("micro", file, ["fit.epochs=9", "calibration.weight.bayesian=1.5"])
    assert (settings.fit.rate, settings.fit.epochs, settings.fit.batch_size) == (0.5, 9, 64)
    assert settings.calibration.weight.of("bayesian") == 1.5
    assert settings.calibration.weight.of("frequentist") == 2.0
    assert settings.with_("calibration.weight=3").calibration.weight.of("frequentist") == 3
    assert settings.with_("fit.rate=1e-3").fit.rate == 0.001


def test_options_belong_to_the_choice_beside_them():
    settings = load_settings("paper")
    assert settings.calibration.options == {"width": 0.4}
    assert settings.with_("calibration.weight=1").calibration.options == {"width": 0.4}
    assert settings.with_("calibration.regularizer=esd").calibration.options == {}
    changed = settings.with_("calibration.regularizer=dece", "calibration.options.bins=10")
    assert changed.calibration.options == {"bins": 10}


def test_a_file_may_name_its_profile(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("profile: paper-code\n")
    assert load_settings("micro", file).fit.rate == pytest.approx(12.8)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("fit.rat=0.1", r"setting fit\.rat does not exist; did you mean fit\.rate\?"),
        ("finetune.gama=1", r"did you mean finetune\.gamma\?"),
        ("gamma=1", r"setting gamma does not exist; did you mean finetune\.gamma\?"),
        ("fit.schedule=cosin", "fit.schedule cannot be 'cosin'; did you mean cosine"),
        (
            "outliers.scores=[knnn]",
            r"outliers.scores.0: there is no detector 'knnn'; did you mean knn\? \(there are dens",
        ),
        ("outliers.options.lof.k=5", "outliers: options are given for lof, which is not among the scores"),
        ("fit.rate=-1", "fit.rate cannot be -1: input should be greater than 0"),
        ("fit.epochs=many", "fit.epochs cannot be 'many'"),
        ("data.validation=0", "setting data.validation cannot be 0"),
        ("seed=4294967296", "seed cannot be 4294967296: input should be less than 4294967296"),
        ("fit.rate", "must look like fit.rate=0.05"),
        ("fit.rate=[", "not YAML"),
        ("calibration.regularizer=mmse", "did you mean mmce"),
    ],
)
def test_wrong_overrides_are_named_with_the_nearest_right_one(override, message):
    with pytest.raises(ValueError, match=message) as caught:
        load_settings("embedded", overrides=[override])
    assert "\n" not in str(caught.value)


def test_wrong_profile_and_files(tmp_path):
    with pytest.raises(ValueError, match="did you mean paper"):
        load_settings("papr")
    with pytest.raises(ValueError, match="cannot be read"):
        load_settings(file=tmp_path / "none.yaml")
    broken = tmp_path / "broken.yaml"
    broken.write_text("a: [")
    with pytest.raises(ValueError, match="is not YAML"):
        load_settings(file=broken)
    broken.write_text("- 1")
    with pytest.raises(ValueError, match="must hold `key: value` pairs"):
        load_settings(file=broken)
    broken.write_text("fitt: {rate: 1}")
    with pytest.raises(ValueError, match=r"setting fitt does not exist; did you mean fit\?"):
        load_settings(file=broken)


def test_every_setting_has_a_dotted_name():
    names = set(setting_names())
    assert {"fit.rate", "calibration.weight.bayesian", "engine.precision", "seed"} <= names
    assert Settings().fit.rate == 0.1


def test_every_setting_says_what_it_is():
    def bare(model, prefix=""):
        for name, field in model.model_fields.items():
            kind = field.annotation
            if isinstance(kind, type) and issubclass(kind, BaseModel) and kind is not ByFamily:
                yield from bare(kind, f"{prefix}{name}.")
            elif not field.description:
                yield prefix + name

    assert not list(bare(Settings))
