"""`calibrant calibrate`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from calibrant import InputError
from calibrant.cli import options, output
from calibrant.cli.errors import resumable
from calibrant.cli.groups import grouped
from calibrant.cli.modules import HELP, network_of
from calibrant.files import read_text
from calibrant.slots import names

if TYPE_CHECKING:
    from calibrant.data import ImageTransform
    from calibrant.deploy.own_network import CalibratedNetwork

EXAMPLES = """
calibrant calibrate my_nets:resnet20 --weights resnet20.pt --data folder:photos --out calibrated \\
    --mean 0.485,0.456,0.406 --std 0.229,0.224,0.225
calibrant calibrate 'timm:create_model?model_name=resnet18&num_classes=10' --weights best.safetensors \\
    --data folder:photos --classes classes.txt --outliers folder:others --out calibrated
calibrant calibrate my_nets:resnet20 --weights resnet20.pt --data folder:photos --size 224 --crop 0.875 \\
    --outliers folder:others --max-error 0.05 --max-outliers 0.1 --delta 0.1 --out certified
"""


@dataclass(frozen=True)
class ImageOptions:
    """What the network expects of images."""

    size: Annotated[
        str | None, typer.Option("--size", metavar="N", help="Height and width of images: 224, or 224x192.")
    ] = None
    crop: Annotated[
        float | None,
        typer.Option(
            "--crop", metavar="SHARE", help="Resize in proportion to size / crop, then crop the center: 0.875."
        ),
    ] = None
    mean: Annotated[
        str | None, typer.Option("--mean", metavar="A,B,C", help="One number per channel, on the scale 0 to 1.")
    ] = None
    std: Annotated[
        str | None, typer.Option("--std", metavar="A,B,C", help="One number per channel, on the scale 0 to 1.")
    ] = None
    interpolation: Annotated[
        str | None, typer.Option("--interpolation", metavar="NAME", help="bilinear (default) or bicubic.")
    ] = None

    def over(self, own: ImageTransform | None) -> ImageTransform | None:
        """The transform of the options, laid over the network's `own`."""
        from calibrant.data import ImageTransform
        from calibrant.data.images import ImageForm

        given: dict[str, Any] = {"crop": self.crop, "interpolation": self.interpolation}
        given |= {name: _numbers(name, getattr(self, name)) for name in ("mean", "std")}
        given["size"] = ImageForm.parse(self.size).size
        chosen = {name: value for name, value in given.items() if value is not None}
        return replace(own or ImageTransform(), **chosen) if chosen else own


@dataclass(frozen=True)
class CertificateOptions:
    """What the certificate is to say."""

    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error", min=0, max=1, metavar="SHARE", help="Certificate: largest error among answered inputs."
        ),
    ] = None
    max_outliers: Annotated[
        float | None,
        typer.Option(
            "--max-outliers", min=0, max=1, metavar="SHARE", help="Certificate: largest share of outliers answered."
        ),
    ] = None
    min_coverage: Annotated[
        float | None,
        typer.Option(
            "--min-coverage", min=0, max=1, metavar="SHARE", help="Certificate: smallest share of inputs answered."
        ),
    ] = None
    delta: Annotated[
        float | None,
        typer.Option(
            "--delta", min=0, max=1, metavar="SHARE", help="Certificate: probability that it is wrong; default: 0.1."
        ),
    ] = None


@grouped
def command(
    module: Annotated[str, typer.Argument(metavar="MODULE", help=HELP)],
    data: Annotated[
        str, typer.Option("--data", metavar="SPEC", help="Labeled data that the network was not trained on.")
    ],
    out: Annotated[Path, typer.Option("--out", metavar="RUN", help="The run directory, which must not exist yet.")],
    images: ImageOptions,
    promise: CertificateOptions,
    weights: Annotated[
        str | None,
        typer.Option("--weights", metavar="FILE", help="Safetensors, or a checkpoint that torch.save wrote."),
    ] = None,
    test: Annotated[
        str | None, typer.Option("--test", metavar="SPEC", help="Labeled test data; default: a fifth of --data.")
    ] = None,
    classes: Annotated[
        Path | None,
        typer.Option(
            "--classes",
            metavar="FILE",
            help="Class names in the order of the outputs, one per line; default: alphabetical.",
        ),
    ] = None,
    outliers: Annotated[
        str | None,
        typer.Option(
            "--outliers",
            metavar="SPEC",
            help="Images of none of the classes: half to fit and certify the rule, half to test it;"
            " default: made from --data.",
        ),
    ] = None,
    ood: Annotated[
        list[str] | None, typer.Option("--ood", metavar="SPEC", help="More outliers, for testing only; repeatable.")
    ] = None,
    calibrator: Annotated[
        str | None,
        typer.Option("--calibrator", metavar="NAME", help=f"{', '.join(names('calibrator'))}; default: temperature."),
    ] = None,
    coverage: Annotated[
        float,
        typer.Option(
            "--coverage",
            min=0,
            max=1,
            metavar="SHARE",
            help="Compare the systems where they answer this share of inputs.",
        ),
    ] = 0.8,
    override: options.Overrides = None,
    device: options.Device = None,
    seed: options.Seed = None,
    json: options.Json = False,
) -> None:
    """Calibrate a trained network of your own and deploy it.

    The weights stay as they are. A fifth of --data is for testing; of the rest, the detectors compare with a quarter,
    and the other three quarters fit and certify the temperature and trust. If the folder has the subfolders train and
    test, train is taken to be what the network was trained on, and only test is divided. Networks from timm bring their
    own size, crop, mean and std.
    """
    from calibrant.backbones import load_weights
    from calibrant.deploy.own_network import calibrate_network, transform_of

    named: dict[str, Any] = {"data__source": data, "data__test_source": test, "data__ood": ood}
    named |= {"data__uncertainty": outliers, "data__classes": None if classes is None else _lines(classes)}
    named |= {"calibrator__name": calibrator, "backbone__name": module, "backbone__weights": weights}
    wanted = {name: value for name, value in vars(promise).items() if value is not None}
    chosen = options.read_settings("own-network", None, override or (), engine__device=device, seed=seed, **named)
    network = network_of(module)
    if weights is not None:
        load_weights(network, weights)
    with resumable(lambda: "stopped; nothing was written: start again"):
        found = calibrate_network(
            network,
            chosen.changed({"rule": wanted}),
            out,
            transform=images.over(transform_of(network)),
            factory=module,
            coverage=coverage,
            command=options.command_line(),
            on_step=lambda name, done, n: output.log(f"{done}/{n} {name}"),
        )
    _show(found, out, module, json, chosen.report.confidence_level)


def _show(found: CalibratedNetwork, out: Path, module: str, as_json: bool, level: float) -> None:
    deployed, certificate = found.deployed(), found.predictor.certificate
    sentence = None if certificate is None else certificate.sentence()
    if as_json:
        about = {"run": str(out), "page": str(out / "report.html"), "accuracy": found.accuracy, "deployed": deployed}
        output.print_json({**about, "certificate": sentence, "rows": [row.flat() for row in found.rows]})
        return
    output.print_results(found.rows, level)
    wrong = "" if deployed["wrong"] is None else f", {100 * deployed['wrong']:.1f} % of the answers wrong"
    counts = deployed["outliers_accepted"].items()
    accepted = "".join(f", {n} of {total} {name} accepted" for name, (n, total) in counts)
    output.print_lines(
        f"The predictor, at its own threshold of {found.predictor.threshold:.3g}, on the test data:"
        f" {100 * deployed['answered']:.1f} % answered{wrong}{accepted}.",
        *([] if sentence is None else [f"Certificate: {sentence}"]),
        f"Page: {out / 'report.html'}",
        "Next:",
        f"  calibrant predict {out} INPUT --module '{module}' --out predictions.csv",
    )


def _lines(file: Path) -> list[str]:
    try:
        lines = [line.strip() for line in read_text(file).splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"--classes {file} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    found = [line for line in lines if line]
    if not found or len(set(found)) < len(found):
        raise InputError(f"--classes {file} must hold different names, one per line")
    return found


def _numbers(name: str, text: str | None) -> tuple[float, ...] | None:
    try:
        return None if text is None else tuple(float(part) for part in text.split(","))
    except ValueError:
        raise InputError(f"--{name} must be numbers such as 0.485,0.456,0.406, not {text!r}") from None
