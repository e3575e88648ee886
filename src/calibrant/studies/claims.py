"""The paper's claims as data, each with where it stands and the numbers that decide it; `own_claims` holds ours."""

from __future__ import annotations

from calibrant.studies import selective_claims as selecting
from calibrant.studies import training_claims as training
from calibrant.studies.findings import Claim
from calibrant.studies.own_claims import OWN_CLAIMS

CLAIMS = (
    Claim("overconfident", "FNN is overconfident.", training.fnn_overconfident, said="Sec. II-B and Fig. 2"),
    Claim("bnn-ece", "BNN has lower ECE than FNN.", training.bnn_ece, said="Sec. V-B"),
    Claim(
        "bnn-better",
        "BNN is slightly more accurate and better at OOD detection than FNN.",
        training.bnn_better,
        said="Sec. V-B and V-C",
    ),
    Claim(
        "ece-frequentist",
        "Calibration regularization lowers ECE by over 20 % (frequentist).",
        training.lower_ece_f,
        said="Sec. V-B",
    ),
    Claim(
        "ece-bayesian",
        "Calibration regularization lowers ECE by 50 % (Bayesian).",
        training.lower_ece_b,
        said="Sec. V-B",
    ),
    Claim(
        "acceptable-drop",
        "With the chosen lambda CFNN and CBNN have a lower ECE at a drop of accuracy by at most 1.5 points.",
        training.acceptable_drop,
        said="appendix B1",
    ),
    Claim("cbnn-ece", "CBNN has lower ECE than CFNN.", training.cbnn_ece, said="Sec. II-D, as an expectation"),
    Claim("lambda-ece", "Increasing lambda lowers ECE.", training.lambda_lowers_ece, said="Sec. V-B, supplement IV-A"),
    Claim(
        "lambda-accuracy",
        "Increasing lambda gradually costs accuracy.",
        training.lambda_costs_accuracy,
        "not on CIFAR-10",
        said="Sec. V-B",
    ),
    Claim(
        "no-ood-help",
        "Calibration regularization does not help OOD detection.",
        training.no_ood_help,
        said="Sec. V-C",
    ),
    Claim(
        "ocm-gain",
        "OCM improves OOD detection, with and without calibration regularization.",
        training.ocm_gains,
        said="Sec. V-C, where it is called drastic",
    ),
    Claim(
        "ocm",
        "OCM raises the OOD detection probability to nearly 1, for all schemes.",
        training.ocm_nearly_one,
        said="appendix B2",
    ),
    Claim(
        "ocm-confidence",
        "OCM makes the confidence on outliers low.",
        training.ocm_lowers_confidence,
        said="Sec. V-C",
    ),
    Claim(
        "ocm-scores",
        "OCM outperforms the MaxLogit and Energy scores in OOD detection.",
        training.ocm_beats_scores,
        said="Sec. III-B, as the conclusion of Choi et al. 2023",
    ),
    Claim("ocm-costs", "OCM costs ID calibration.", training.ocm_costs, said="Sec. I-B, I-C and IV"),
    Claim(
        "ocm-conservative",
        "OCM makes networks underconfident.",
        training.ocm_conservative,
        said="Sec. I-B, as excessively conservative",
    ),
    Claim(
        "accuracy-at-level",
        "At any given level of OOD detection BNN-OCM is more accurate than FNN-OCM.",
        training.accuracy_at_level,
        said="Sec. V-C",
    ),
    Claim(
        "regularizer-at-level",
        "At a given level of OOD detection calibration regularization lowers ECE at the cost of accuracy.",
        training.regularizer_at_level,
        said="Sec. V-C and V-D",
    ),
    Claim(
        "selective",
        "Below 50 % coverage SCBNN-OCM beats SBNN-OCM in all three measures.",
        selecting.selective_beats,
        "not on CIFAR-10",
        said="Sec. V-D",
    ),
    Claim(
        "compensates",
        "Selective calibration makes up for the ID calibration that OCM costs.",
        selecting.compensates,
        said="Sec. I-C and V-D",
    ),
    Claim(
        "selection-detects",
        "Selective calibration further improves OOD detection.",
        selecting.selection_improves_detection,
        said="Fig. 1",
    ),
    Claim(
        "calibration-classification",
        "Selective calibration gives a lower ECE than selective classification.",
        selecting.calibration_against_classification,
        said="Sec. I-B",
    ),
    Claim(
        "against-fnn",
        "Against FNN, SCBNN-OCM at about 50 % coverage has +25 % accuracy, -20 % ECE, +50 % OOD detection.",
        selecting.against_fnn,
        said="Sec. VI",
    ),
    Claim(
        "best",
        "Where enough inputs are rejected, SCBNN-OCM is better than the benchmarks CFNN, FNN-OCM and SFNN in all three"
        " measures.",
        selecting.best_of_all,
        said="abstract, Sec. I-C and VI",
    ),
    Claim(
        "bayesian-selectors",
        "At 40 % coverage the Bayesian selective schemes beat SFNN in all three measures.",
        selecting.bayesian_selectors,
        said="supplement III",
    ),
    Claim(
        "eta",
        "Selective calibration is robust to eta, more so for Bayesian schemes.",
        selecting.robust_to_eta,
        said="supplement III, appendix B3",
    ),
    Claim(
        "lambda",
        "CBNN is more sensitive to lambda than CFNN, yet better than BNN over a wide range.",
        training.cbnn_sensitive,
        said="supplement I",
    ),
    Claim("gamma", "Results are stable for gamma > 0.1.", training.stable_gamma, said="supplement II"),
    Claim(
        "cifar10-accuracy",
        "On CIFAR-10 accuracy hardly changes as lambda grows.",
        training.accuracy_over_lambda,
        "on CIFAR-10",
        said="supplement IV-A",
    ),
    Claim(
        "cifar10-balance",
        "On CIFAR-10 OCM costs CFNN accuracy and calibration, and more of them than CBNN.",
        training.cbnn_balances,
        "on CIFAR-10",
        said="supplement IV-B",
    ),
    Claim(
        "cifar10-selective",
        "On CIFAR-10 SCBNN-OCM beats SBNN-OCM in ECE and OOD detection at similar accuracy.",
        selecting.selective_beats_cifar10,
        "on CIFAR-10",
        said="supplement IV-C",
    ),
    Claim(
        "cifar10-coverage",
        "On CIFAR-10, SCBNN-OCM at 70 % coverage has an accuracy of about 99 %, an ECE under 1 % and an OOD detection"
        " probability of nearly 1.",
        selecting.at_seventy,
        "on CIFAR-10",
        said="supplement IV-C",
    ),
    *OWN_CLAIMS,
)
