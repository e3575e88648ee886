"""Prints the coverage that `coverage combine` left, and fails below the limits: one by line, one by branch."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

LIMITS = {"line": 95.0, "branch": 90.0}


def shares(totals: dict[str, float]) -> dict[str, float]:
    """Percent of lines and of branches that ran, from the totals of coverage's JSON report."""
    return {
        "line": 100 * totals["covered_lines"] / totals["num_statements"],
        "branch": 100 * totals["covered_branches"] / totals["num_branches"],
    }


def main() -> None:
    coverage = [sys.executable, "-m", "coverage"]
    subprocess.run([*coverage, "report", "--skip-covered", "--show-missing"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "coverage.json"
        subprocess.run([*coverage, "json", "--quiet", "-o", str(path)], check=True)
        found = shares(json.loads(path.read_text())["totals"])
    print(", ".join(f"{found[kind]:.1f} % by {kind} (at least {limit:g} %)" for kind, limit in LIMITS.items()))
    if any(found[kind] < limit for kind, limit in LIMITS.items()):
        raise SystemExit("coverage of src is too low")


if __name__ == "__main__":
    main()
