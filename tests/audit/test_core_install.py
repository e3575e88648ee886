"""What an audit says where the core alone is installed, without pyarrow and pandas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

WITHOUT = """
import sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyarrow", "pandas"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
from calibrant.audit import audit
"""
ARRAYS = "result = audit([0, 1] * 50, [[0.8, 0.2], [0.4, 0.6]] * 50)\n"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("audit('preds.csv')", "reading preds.csv needs pyarrow: pip install 'calibrant[app]'"),
        (ARRAYS + "result.to_frame()", "a frame needs pandas: pip install pandas"),
        (ARRAYS + "raise SystemExit(f'gap {result.gap.estimate:.1f}')", "gap -0.3"),
    ],
)
def test_a_package_that_is_missing_is_named_with_the_line_that_installs_it(
    code: str, told: str, tmp_path: Path
) -> None:
    (tmp_path / "preds.csv").write_text("confidence,correct\n0.9,1\n")
    done = subprocess.run([sys.executable, "-c", WITHOUT + code], cwd=tmp_path, capture_output=True, text=True)
    assert told in done.stderr.strip().splitlines()[-1]
