"""`calibrant`, and `python -m calibrant`, which is also how torchrun starts it.

torchrun --nproc-per-node 2 -m calibrant train ...
"""

from __future__ import annotations

import sys

from calibrant import install_line


def main() -> None:
    """Run the command line and exit; where it is not installed, one sentence says how to install it."""
    try:
        from calibrant import cli
    except ModuleNotFoundError as error:
        if (line := install_line(error.name)) is None:
            raise
        print(f"calibrant: the command line needs {error.name}, which is not installed: {line}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        sys.exit(130)
    cli.main()


if __name__ == "__main__":
    main()
