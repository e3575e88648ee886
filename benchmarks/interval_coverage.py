"""How often intervals hold the truth, by simulation.

    python -m benchmarks.interval_coverage [SIMULATIONS [SEED [TEXT]]]

Each case is a population whose true value is known: confidences with a known probability of being right, or two known
histograms. Samples are drawn from it, and the intervals of `bootstrap` at 95 % are compared with the truth: the default
one, and beside it the basic bootstrap. The table is in `docs/measures.md`. Of 10,000 points a third as many samples are
drawn, and for the basic bootstrap a quarter as many. In brackets stands the 95 % interval of Wilson for the share of
intervals that hold the truth. With TEXT only the cases are run whose name holds it, such as "nearly all right".

The intervals were chosen on the populations of `cases` with the seed 0. The default seed is another one, and `held_out`
are populations that had no part in the choice.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant import metrics
from calibrant.metrics.functional import functional_of
from calibrant.metrics.proportion import proportion
from calibrant.metrics.resampling import Method

Array = NDArray[np.float64]
SIZES = (200, 1000, 10_000)
SIMULATIONS, SEED = 600, 2
_MANY = 200_000


@dataclass(frozen=True)
class Case:
    """A population: the measure, its true value there, and a function that draws the measure's arguments."""

    name: str
    measure: Callable[..., float]
    options: dict[str, Any]
    truth: float
    draw: Callable[[np.random.Generator, int], tuple[Any, ...]]


def calibration_case(
    name: str,
    measure: Callable[..., float],
    shape: tuple[float, float],
    right: Callable[[Array], Array],
    **options: Any,
) -> Case:
    """Confidences that are Beta-distributed, each right with probability `right(confidence)`."""
    from scipy.stats import beta

    level = beta(*shape).ppf((np.arange(_MANY) + 0.5) / _MANY)
    # each point twice, right and wrong, weighing what that is likely; large weights leave no noise to correct for
    weights = 1e6 * np.concatenate([right(level), 1 - right(level)])
    twice, outcome = np.concatenate([level, level]), np.repeat([1.0, 0.0], _MANY)
    functional = functional_of(measure, twice, outcome, **options)
    truth = float(np.clip(functional.value([weights]), *functional.bounds))

    def draw(rng: np.random.Generator, n: int) -> tuple[Array, NDArray[np.bool_]]:
        confidence = rng.beta(*shape, n)
        return confidence, rng.random(n) < right(confidence)

    return Case(name, measure, options, truth, draw)


def variation_case(name: str, p: Array, q: Array, **options: Any) -> Case:
    """ID and OOD confidences in 15 bins with probabilities p and q, as many of either."""
    middle = (np.arange(15) + 0.5) / 15

    def draw(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
        return rng.choice(middle, n, p=p), rng.choice(middle, n, p=q)

    return Case(name, metrics.total_variation, options, float(np.abs(p - q).sum() / 2), draw)


def nearly_all_right() -> Iterator[Case]:
    """Few errors, none in many a sample: as many as said twenty times over, and a third of those said."""
    ece = metrics.expected_calibration_error
    for accuracy, confidence in ((0.998, 0.9999), (0.995, 0.985)):
        shape = confidence / (1 - confidence), 1.0

        def right(level: Array, share: float = accuracy) -> Array:
            return np.full_like(level, share)

        for name, measure, options in (
            ("ECE", ece, {}),
            ("ECE, equal mass", ece, {"binning": "mass"}),
            ("smECE", metrics.smooth_calibration_error, {}),
            ("RMS CE", metrics.debiased_calibration_error, {}),
            ("mean gap", metrics.mean_gap, {}),
        ):
            yield calibration_case(f"{name}, nearly all right", measure, shape, right, **options)


def overconfident(gap: float) -> Callable[[Array], Array]:
    """Right less often than said, by `gap` everywhere."""
    return lambda confidence: np.clip(confidence - gap, 0, 1)


def alternating(gap: float) -> Callable[[Array], Array]:
    """Over- and underconfident by turns, from bin to bin of 15."""
    return lambda confidence: np.clip(confidence + gap * np.where(np.ceil(15 * confidence) % 2 == 1, 1, -1), 0, 1)


def in_one_bin(gap: float) -> Callable[[Array], Array]:
    """Overconfident in one bin only, such that the ECE is about `gap`; calibrated elsewhere."""
    return lambda confidence: np.where(np.ceil(15 * confidence) == 12, np.clip(confidence - 7 * gap, 0, 1), confidence)


def shares(a: float, b: float) -> Array:
    """Fifteen probabilities in the shape of a Beta density."""
    middle = (np.arange(15) + 0.5) / 15
    weight = middle ** (a - 1) * (1 - middle) ** (b - 1)
    result: Array = weight / weight.sum()
    return result


def moved(p: Array, q: Array, variation: float) -> Array:
    """A mixture of p and q whose total variation from p is `variation`."""
    result: Array = p + (q - p) * variation / (np.abs(p - q).sum() / 2)
    return result


def cases() -> Iterator[Case]:
    """All cases, in the order of the table."""
    usual, crowded, ece = (5.0, 1.3), (20.0, 1.0), metrics.expected_calibration_error
    smooth, root = metrics.smooth_calibration_error, metrics.debiased_calibration_error
    for gap in (0.0, 0.02, 0.1):
        yield calibration_case("ECE", ece, usual, overconfident(gap))
    for gap in (0.0, 0.02):
        yield calibration_case("ECE, confidences near 1", ece, crowded, overconfident(gap))
    yield calibration_case("ECE, signs alternate", ece, usual, alternating(0.1))
    yield calibration_case("ECE, in one bin", ece, usual, in_one_bin(0.02))
    for gap in (0.0, 0.1):
        yield calibration_case("ECE, equal mass", ece, usual, overconfident(gap), binning="mass")
    for measure, name in ((smooth, "smECE"), (root, "RMS CE")):
        for gap in (0.0, 0.02, 0.1):
            yield calibration_case(name, measure, usual, overconfident(gap))
    yield from nearly_all_right()
    yield calibration_case("coverage at 5 % error", metrics.coverage_at_error, usual, overconfident(0.0), error=0.05)
    p = shares(8, 1.2)
    for corrected in (True, False):
        for variation in (0.0, 0.08, 0.7):
            name = "TV, corrected" if corrected else "TV"
            yield variation_case(name, p, moved(p, shares(2, 3), variation), corrected=corrected)


def held_out() -> Iterator[Case]:
    """Populations on which nothing was chosen: flatter confidences, underconfidence, histograms of other shapes."""
    flat = (2.0, 1.5)
    ece, smooth = metrics.expected_calibration_error, metrics.smooth_calibration_error
    for gap in (0.0, 0.02, 0.1):
        yield calibration_case("ECE, flat confidences", ece, flat, overconfident(gap))
    yield calibration_case("ECE, underconfident", ece, flat, overconfident(-0.05))
    yield calibration_case("ECE, equal mass, flat", ece, flat, overconfident(0.02), binning="mass")
    for gap in (0.0, 0.02, 0.1):
        yield calibration_case("smECE, flat confidences", smooth, flat, overconfident(gap))
    for gap in (0.0, 0.05):
        yield calibration_case("RMS CE, flat confidences", metrics.debiased_calibration_error, flat, overconfident(gap))
    p = shares(3, 2)
    for variation in (0.0, 0.08, 0.6):
        name = "TV, corrected, flat histograms"
        yield variation_case(name, p, moved(p, shares(1, 4), variation), corrected=True)


def covered(
    case: Case, n: int, simulations: int, *, method: Method = "auto", resamples: int = 200, seed: int = 0
) -> tuple[float, float]:
    """The share of intervals that hold the truth, and their mean width."""
    rng, hits, width = np.random.default_rng(seed), 0, 0.0
    for _ in range(simulations):
        arrays = case.draw(rng, n)
        found = metrics.bootstrap(case.measure, *arrays, resamples=resamples, method=method, **case.options)
        hits += found.low - 1e-9 <= case.truth <= found.high + 1e-9
        width += found.high - found.low
    return hits / simulations, width / simulations


def percent(share: float, simulations: int) -> str:
    """A share of the simulations in percent, with its interval."""
    found = proportion(share * simulations, simulations)
    return f"{100 * share:.1f} ({100 * found.low:.1f} to {100 * found.high:.1f})"


def main(simulations: int, seed: int, text: str) -> None:
    """Print the table of the cases whose name holds `text`."""
    print("| measure | truth | n | covered, % | mean width | basic: covered, % | mean width |")
    print("|---|---|---|---|---|---|---|")
    for case in (case for case in (*cases(), *held_out()) if text in case.name):
        for n in SIZES:
            often = simulations // (3 if n == SIZES[-1] else 1)
            ours, basic = covered(case, n, often, seed=seed), covered(case, n, often // 4, method="basic", seed=seed)
            shown = "– | –" if np.isnan(ours[1]) else f"{percent(ours[0], often)} | {ours[1]:.3f}"
            beside = f"{percent(basic[0], often // 4)} | {basic[1]:.3f}"
            print(f"| {case.name} | {case.truth:.3f} | {n} | {shown} | {beside} |", flush=True)


if __name__ == "__main__":
    often, seed, text = [*sys.argv[1:], *(str(SIMULATIONS), str(SEED), "")[len(sys.argv) - 1 :]]
    main(int(often), int(seed), text)
