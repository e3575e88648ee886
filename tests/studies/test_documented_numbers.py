"""The numbers in README.md and docs/ are those of the tables under results/, which follow from the records."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from calibrant.studies import Lab
from calibrant.studies.study_trial import StudyTrial

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "results"
pytestmark = pytest.mark.skipif(not RESULTS.is_dir(), reason="the source distribution holds no results")
CALLED = {"the same after OCM": "temperature + confidence after OCM", "temperature + confidence threshold": ""}


def cells(line: str) -> list[str]:
    return [cell.strip().replace("`", "") for cell in line.strip().strip("|").split("|")]


def shown(document: str, title: str) -> list[dict[str, str]]:
    """The rows of the first table below the heading `title` of a Markdown file, by column."""
    _, found, text = (ROOT / document).read_text().partition(f"\n{title}\n")
    assert found, title
    block = re.search(r"((?:^\|.*\n)+)", text, re.MULTILINE)
    assert block is not None
    head, _, *rows = block[1].splitlines()
    return [dict(zip(cells(head), cells(row), strict=True)) for row in rows]


def measured(table: str) -> dict[str, dict[str, str]]:
    """The rows of a table under results/ by system, each by column."""
    head, _, *rows = [line for line in (RESULTS / table).read_text().splitlines() if line.startswith("| ")]
    return {cells(row)[0]: dict(zip(cells(head), cells(row), strict=True)) for row in rows}


def as_dicts(table: str) -> list[dict[str, str]]:
    """The rows of a CSV file under results/."""
    return list(csv.DictReader((RESULTS / table).read_text().splitlines()))


def system(label: str) -> str:
    """The system that a row of docs/trust.md is about."""
    if label in CALLED:
        return CALLED[label] or "temperature + confidence"
    for name in ("SFNN", "SCBNN-OCM", "SIRC", "trust, 20 outliers", "trust, synthetic outliers"):
        if name in label:
            return name
    assert re.match(r"trust, [\d,]+ outliers of D_u", label), label
    return "trust"


TITLES = {
    "wrong, half outliers": "wrong, 50 % outliers",
    "wrong, 10 %": "wrong, 10 % outliers",
    "wrong, none": "wrong, no outliers",
    "ECE, half outliers": "ECE, 50 % outliers",
    "ECE, 10 %": "ECE, 10 % outliers",
    "accepted of 900": "accepted of 900 held-out-domains",
    "accepted of 10,000 CIFAR-100": "accepted of 10000 cifar100",
    "of 10,000 Fashion-MNIST": "accepted of 10000 fashion-mnist",
    "of 5,000 letters": "accepted of 5000 letters",
}


@pytest.mark.parametrize(
    ("title", "run"),
    [
        ("## What it gives", "pretrained"),
        ("### On text", "clinc150"),
        ("### On CIFAR-10, with a network of our own", "cifar10"),
    ],
)
def test_the_tables_on_trust_are_measured(title: str, run: str) -> None:
    table = measured(f"{run}/trust/table.md")
    for row in shown("docs/trust.md", title):
        found = table[system(row.pop("rule"))]
        for column, cell in row.items():
            if cell not in ("no probability", ""):
                assert cell == found[TITLES[column]], (column, row)


def test_the_table_of_posteriors_is_measured() -> None:
    table, streams = (
        {(row["system"], row["posterior"]): row for row in as_dicts(f"micro/posteriors/{name}.csv")}
        for name in ("table", "outliers")
    )
    costs = measured("micro/posteriors/cost.md")
    rows = shown("docs/posterior.md", "## Which family to use")
    assert len(rows) == 8
    for row in rows:
        name = row["BNN with"].split(" (")[0].replace(", 3 epochs each", "_divided")
        found, stream = table["BNN", name], streams["BNN", name]
        for column, key in (("accuracy", "accuracy"), ("ECE", "ECE"), ("ECE, temperature", "ECE, temperature")):
            assert row[column] == f"{100 * float(found[key]):.1f}", (name, column)
        assert float(row["NLL"]) == pytest.approx(float(found["NLL, temperature"]), abs=6e-4)
        assert row["AURC"] == f"{100 * float(found['AURC, temperature']):.1f}"
        assert row["wrong answers"] == f"{100 * float(stream['wrong, 10 % cifar100']):.1f}"
        for column, cost in (("training", "training of BNN"), ("prediction", "prediction of 1,000 inputs")):
            relative = float(costs[name][f"{cost}, relative"])
            assert float(row[column]) == pytest.approx(relative, abs=0.051), (name, column)


def first(cell: str) -> str:
    """The number without its interval."""
    return cell.partition(" [")[0]


class Schemes:
    """The schemes of a run at full coverage, in percent."""

    def __init__(self, run: str) -> None:
        self.rows = measured(f"{run}/ood-histograms/table.md")

    def __call__(self, scheme: str, column: str) -> float:
        return float(first(self.rows[scheme][column]))


class Rules:
    """The rules of a run: the share of wrong answers and the ECE in streams, in percent, and accepted outliers."""

    def __init__(self, run: str) -> None:
        self.rows = measured(f"{run}/trust/table.md")
        goals = [row for row in as_dicts(f"{run}/trust/goals.csv") if row["system"] == "trust"]
        self.ratio = {row["outliers"]: row["ratio of wrong answers"] for row in goals}

    def wrong(self, system: str, share: str = "50 %") -> str:
        """Such as "7.5 [5.6, 9.4]"."""
        return self.rows[system][f"wrong, {share} outliers"]

    def told(self, system: str) -> str:
        """Such as "7.5 % [5.6, 9.4]": wrong answers where half of the inputs are outliers."""
        return self.wrong(system).replace(" [", " % [")

    def ece(self, system: str) -> float:
        return float(first(self.rows[system]["ECE, 50 % outliers"]))

    def fewer(self, share: str) -> str:
        """By how many points trust gives fewer wrong answers than the baseline."""
        base, trust = (float(first(self.wrong(system, share))) for system in (BASE, "trust"))
        return f"{base - trust:.0f}"

    def accepted(self, system: str, ood: str) -> str:
        (column,) = (name for name in self.rows[system] if name.startswith("accepted") and name.endswith(f" {ood}"))
        return f"{int(self.rows[system][column]):,}"


BASE = "temperature + confidence"


def on_the_front_page() -> list[str]:
    """Every statement of README.md in running text that holds numbers of a run, made from the tables."""
    c10, two, c100 = Schemes("cifar10"), Schemes("cifar100"), Rules("cifar100")
    ours, text, somebody = Rules("cifar10"), Rules("clinc150"), Rules("pretrained")
    lsun, new = "OOD detection, lsun-resize", "OOD detection, cifar100"
    without = [c10(scheme, lsun) for scheme in ("FNN", "CFNN", "BNN", "CBNN")]
    with_it = {f"{c10(f'{scheme}-OCM', lsun):.0f}" for scheme in ("FNN", "CFNN", "BNN", "CBNN")}
    alone = [c10(scheme, "ECE") for scheme in ("BNN", "CFNN", "FNN + temperature")]
    half = [row["accuracy"] for row in as_dicts("cifar10/coverage/table.csv") if row["wanted coverage"] == "0.5"]
    assert with_it == {"98"}
    assert {f"{100 * float(accuracy):.0f}" for accuracy in half} <= {"99", "100"}
    assert half
    assert two("FNN", "accuracy") - two("BNN", "accuracy") == pytest.approx(1, abs=0.2)
    wrong = {name: first(ours.wrong(name)) for name in ("SCBNN-OCM", BASE, "trust")}
    return [
        f"(detection probability {min(without):.0f} to {max(without):.0f} % without it, 98 % with it;",
        f"for CIFAR-100 the detection probability is about {c10('FNN', new):.0f} % before and after",
        f"bring the ECE from {c10('FNN', 'ECE')} to {alone[0]}, {alone[1]} and {alone[2]} %, at no cost in accuracy",
        f"(CBNN) are underconfident, with an ECE of {c10('CBNN', 'ECE')} %",
        f"{wrong['SCBNN-OCM']} % of the answers of SCBNN-OCM are wrong, {wrong[BASE]} % with a temperature and a"
        f" threshold, and {wrong['trust']} % with trust",
        f"{text.told(BASE)} of the answers are wrong with a temperature and a threshold,"
        f" {text.told('trust')} with trust, and {text.told('SCBNN-OCM')} with SCBNN-OCM",
        f"the ECE in that stream is {text.ece(BASE)}, {text.ece('trust')} and {text.ece('SCBNN-OCM')} %",
        f"(ECE {somebody.ece('trust'):.0f} % instead of {somebody.ece(BASE):.0f} %)",
        f"three quarters of the baseline's wrong answers is missed ({first(somebody.ratio['50 %'])})",
        f"trust gives {c100.fewer('50 %')} points fewer wrong answers where half of the inputs are outliers,"
        f" {c100.fewer('10 %')} point fewer where a tenth are, and no fewer without outliers",
        f"the ECE falls from {two('FNN', 'ECE')} to {two('BNN', 'ECE')} %, with a temperature to"
        f" {two('FNN + temperature', 'ECE')} %. It costs a point of accuracy",
        f"the ECE falls from {c100.ece(BASE):.0f} to {c100.ece('trust'):.0f} %, and to"
        f" {c100.ece('trust, 20 outliers'):.0f} % with twenty outliers",
    ]


def on_trust() -> list[str]:
    """The same of docs/trust.md."""
    ours, text, c100, somebody = (Rules(run) for run in ("cifar10", "clinc150", "cifar100", "pretrained"))
    mnist, letters = (
        f"{somebody.accepted('trust', ood)} ({somebody.accepted(BASE, ood)})" for ood in ("fashion-mnist", "letters")
    )
    tenth, half = "trust, 10 % assumed", "trust, 50 % assumed"
    none = [first(somebody.wrong(name, "no")) for name in (half, "trust")]
    return [
        f"with half outliers; it is {somebody.ratio['50 %']}",
        f"{somebody.ratio['10 %']} of the baseline's wrong answers",
        f"{somebody.accepted('trust', 'cifar100')} of 10,000 are accepted"
        f" (baseline {somebody.accepted(BASE, 'cifar100')})",
        f"against {mnist} of Fashion-MNIST and {letters.replace(' (', ' of 5,000 (')} letters",
        f"assuming 10 % where half are outliers, {first(somebody.wrong(tenth))} % of the answers are wrong instead of"
        f" {first(somebody.wrong('trust'))}, but the ECE is {somebody.ece(tenth)} % instead of {somebody.ece('trust')}",
        f"assuming half where there are none, {none[0]} % instead of {none[1]}",
        f"(ratio {text.ratio['50 %']})",
        f"Trust gives {ours.ratio['50 %']} of the baseline's wrong answers",
        f"it accepts {ours.accepted('SCBNN-OCM', 'lsun-resize')} of 2,000,"
        f" trust {ours.accepted('trust', 'lsun-resize')},"
        f" and trust on the confidence after OCM {ours.accepted('trust, confidence after OCM', 'lsun-resize')}",
        f"{c100.told(BASE)} of the answers are wrong with a temperature and a threshold,"
        f" {c100.told('trust')} with trust, a ratio of {first(c100.ratio['50 %'])};"
        f" with 10 % outliers {first(c100.wrong(BASE, '10 %'))} and"
        f" {first(c100.wrong('trust', '10 %'))} %",
        f"Of D_u's kind trust answers {c100.accepted('trust', 'imagenet-resize')} of 2,000, the baseline"
        f" {c100.accepted(BASE, 'imagenet-resize')}, SCBNN-OCM {c100.accepted('SCBNN-OCM', 'imagenet-resize')}",
    ]


def on_reproducing() -> list[str]:
    """The same of what docs/reproduce.md says of choices of lambda and of validation data."""
    plain, fifth, half = Lab.load(RESULTS / "cifar10").choice("CBNN")["validation"][:3]
    costs = [f"{100 * (plain['accuracy'] - one['accuracy']):.1f}" for one in (fifth, half)]
    network = Lab.load(RESULTS / "cifar100")
    held_out = network.record(StudyTrial("FNN"))["validation"]
    other, _, *rest = network.choice("CBNN")["validation"]
    drops = [100 * (other["accuracy"] - one["accuracy"]) for one in rest]
    return [
        f"0.2 costs {costs[0]} points of validation accuracy, 0.5 already {costs[1]}",
        f"ECE ({100 * plain['ece']:.1f} % without, {100 * fifth['ece']:.1f} % at 0.2)",
        f"FNN is right in {100 * held_out['accuracy']:.1f} % of the validation images with an ECE of"
        f" {100 * held_out['ece']:.1f} %",
        f"(0.5 costs {drops[0]:.1f} points of validation accuracy, 1 costs {drops[1]:.0f})",
    ]


STATEMENTS = [("README.md", on_the_front_page), ("docs/trust.md", on_trust), ("docs/reproduce.md", on_reproducing)]


@pytest.mark.parametrize(("document", "statements"), STATEMENTS)
def test_the_numbers_in_sentences_are_measured(document: str, statements: Callable[[], list[str]]) -> None:
    text = " ".join((ROOT / document).read_text().replace("*", "").split())
    assert not [statement for statement in statements() if statement not in text]
