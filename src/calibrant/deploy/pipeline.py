"""Train schemes to the end: every stage they need, then evaluations and predictors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from calibrant.config.loading import Settings
from calibrant.config.schemes import Scheme
from calibrant.deploy.deploying import decoding_of, predictor_of
from calibrant.deploy.evaluating import evaluation_of
from calibrant.evaluation import Evaluation
from calibrant.runs.run import Run
from calibrant.training import Workspace, open_data
from calibrant.training.checking import check_schemes

PRODUCTS: Mapping[str, tuple[str, ...]] = {
    "FNN + temperature": ("calibrator.name=temperature",),
    "FNN + trust": ("calibrator.name=temperature", "rule.name=trust"),
}
"""What the paper's schemes are compared with: the baseline, and the default outside the paper's profiles."""

OnStep = Callable[[str, int, int], None]  # what comes next, how many steps are done, of how many


def train_run(
    settings: Settings,
    schemes: Sequence[Scheme | str],
    out: str | Path,
    *,
    command: str = "",
    products: Sequence[str] = (),
    on_step: OnStep | None = None,
    progress: bool | None = None,
) -> list[Evaluation]:
    """Train `schemes` in the run directory `out`; what is finished there already is not done again.

    Args:
        settings: all settings.
        schemes: names or schemes.
        out: the run directory; one with other settings is refused.
        command: what the page will say how it was made.
        products: names of `PRODUCTS` to evaluate beside the schemes.
        on_step: told before every step, and after the last.
        progress: bars for the training stages; None shows them on a terminal.

    Returns:
        The evaluations, in the order of `schemes`.
    """
    wanted = [Scheme.parse(scheme) for scheme in schemes]
    run = Run(out)
    run.check(settings)
    data = open_data(settings.data, settings.seed)
    check_schemes(wanted, data, settings)
    workspace = Workspace(data, settings, out, progress=progress)
    workspace.check(*wanted)
    if workspace.fabric.is_global_zero:
        more = {"products": list(products)} if products else {}
        run.begin(settings, wanted, command, data.splits_json(), **more)
    workspace.fabric.barrier()
    evaluations: dict[Scheme, Evaluation] = {}
    steps = [*_steps(workspace, run, wanted, evaluations), *_product_steps(workspace, run, products)]
    for done, (name, step) in enumerate(steps):
        if on_step is not None:
            on_step(name, done, len(steps))
        step()
    if on_step is not None:
        on_step("done", len(steps), len(steps))
    return [evaluations[scheme] for scheme in wanted]


def _steps(
    workspace: Workspace, run: Run, schemes: Sequence[Scheme], evaluations: dict[Scheme, Evaluation]
) -> Iterator[tuple[str, Callable[[], object]]]:
    """What is to be done, by name; parents first, and selective schemes before the others, which they save work."""
    needed = {link for scheme in schemes for link in scheme.chain}
    for link in Scheme.all():
        if link in needed and not link.selective:
            yield f"{'fine-tune' if link.ocm else 'fit'} {link}", partial(workspace.history, link)
    for scheme in sorted(schemes, key=lambda one: not one.selective):
        verb = "select" if scheme.selective else "evaluate"
        yield f"{verb} {scheme}", partial(_finish, workspace, run, scheme, evaluations)


def _product_steps(workspace: Workspace, run: Run, names: Sequence[str]) -> Iterator[tuple[str, Callable[[], object]]]:
    for name in names:
        yield f"evaluate {name}", partial(_keep, workspace.with_settings(*PRODUCTS[name]), run, Scheme(), name)


def _finish(workspace: Workspace, run: Run, scheme: Scheme, evaluations: dict[Scheme, Evaluation]) -> None:
    evaluations[scheme] = _keep(workspace, run, scheme, str(scheme))


def _keep(workspace: Workspace, run: Run, scheme: Scheme, name: str) -> Evaluation:
    """Evaluation and predictor of a trained scheme, kept as `name`; all ranks make them, because they communicate."""
    selection = workspace.selection(scheme)
    evaluation = evaluation_of(workspace.settings, name, selection.predictions)
    transform = decoding_of(workspace.settings.data.source, workspace.data)
    predictor = predictor_of(workspace, scheme, selection, transform=transform)
    if workspace.fabric.is_global_zero:
        evaluation.save(run.evaluation_path(name))
        predictor.save(run.predictor_path(name))
    workspace.fabric.barrier()
    return evaluation
