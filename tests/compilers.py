"""What kernels in C are tested with."""

from __future__ import annotations

import os
import shutil

import pytest

needs_compiler = pytest.mark.skipif(
    not any(map(shutil.which, (os.environ.get("CC", "cc"), "cc", "gcc", "clang"))), reason="needs a C compiler"
)
FUSE = [False, pytest.param(True, marks=needs_compiler)]
