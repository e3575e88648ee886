from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import calibrant

SOURCE = Path(calibrant.__file__).parent
CORE = ["checks", "kernels", "adapters", "metrics", "predictions", "posteriors", "losses", "calibrators", "detectors"]
CORE += ["selective"]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_the_package_imports_neither_torch_nor_numpy() -> None:
    heavy = {"torch", "numpy", "sklearn", "pydantic", "rich", "lightning_fabric"}
    loaded = run("import sys, calibrant; print(*sorted({m.partition('.')[0] for m in sys.modules}))").split()
    assert not heavy & set(loaded)


def test_using_every_core_name_imports_torch_and_numpy_only() -> None:
    """scikit-learn and SciPy take a second to import: what fits a forest imports them, what names one does not."""
    names = ("MeanField", "Ensemble", "Objective", "Scheme", "Selector", "kernels", "metrics", "posteriors")
    names += ("detectors", "calibrators", "losses", "selective")
    code = f"import sys, calibrant; [getattr(calibrant, n) for n in {names}]; print(*sys.modules)"
    assert not {"sklearn", "scipy", "torchmetrics", "pandas", "pydantic"} & set(run(code).split())


@pytest.mark.parametrize("name", calibrant.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(calibrant, name) is not None
    assert name in dir(calibrant)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Unheard'"):
        calibrant.Unheard  # noqa: B018


def test_the_core_needs_torch_numpy_and_scikit_learn_only() -> None:
    allowed = {"torch", "numpy", "sklearn", "scipy", "calibrant", "torchmetrics"} | set(sys.stdlib_module_names)
    for room in CORE:
        files = [SOURCE / f"{room}.py"] if (SOURCE / f"{room}.py").exists() else sorted((SOURCE / room).glob("*.py"))
        assert files, room
        for file in files:
            for node in ast.walk(ast.parse(file.read_text())):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names += [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
                for name in names:
                    assert name.partition(".")[0] in allowed, f"{file.name} imports {name}"


@pytest.mark.parametrize("room", ["checks", "metrics", "predictions", "evaluation", "report", "audit"])
def test_what_measures_is_imported_without_torch(room: str) -> None:
    heavy = {"torch", "scipy", "sklearn", "pandas", "pyarrow", "matplotlib", "altair", "pydantic"}
    loaded = run(f"import sys, calibrant.{room}; print(*sys.modules)").split()
    assert not heavy & set(loaded)


def test_a_table_is_audited_without_torch_and_pandas(tmp_path: Path) -> None:
    table, ood = tmp_path / "predictions.csv", tmp_path / "outliers.csv"
    table.write_text("label,p_0,p_1\n" + "0,0.75,0.25\n1,0.25,0.75\n1,0.625,0.375\n" * 40)
    ood.write_text("p_0,p_1\n" + "0.5,0.5\n0.375,0.625\n" * 40)
    heavy = "print({{'torch', 'pandas'}} & {{*sys.modules}})"
    code = "import sys; from calibrant.audit import audit; audit({!r}, {!r}); " + heavy
    assert run(code.format(str(table), str(ood))).split() == ["set()"]
    command = (
        "import sys; from calibrant.cli import app; app({!r}, standalone_mode=False); print('torch' in sys.modules)"
    )
    assert "torch" not in run(command.format(["audit", str(table), "--ood", str(ood), "--json"])).split()
