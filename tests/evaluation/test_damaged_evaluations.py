"""Damaged evaluation files: one sentence, whatever byte is wrong."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.evaluation import Evaluation
from calibrant.predictions import Predictions


def test_a_file_with_any_byte_altered_is_read_or_refused_in_one_sentence(tmp_path):
    confidence = np.linspace(0.1, 0.9, 20)
    said = Predictions(confidence=confidence, predicted=np.zeros(20, int), labels=np.arange(20) % 2)
    path = tmp_path / "e.npz"
    Evaluation("FNN", 0, said, {"far": said}).save(path)
    whole, refused = path.read_bytes(), list[bool]()
    for place in range(0, len(whole), 7):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            Evaluation.load(path)
        except ValueError as error:
            refused.append("is not a saved evaluation" in str(error))
    assert refused
    assert all(refused)
    path.write_bytes(whole[:-30])
    with pytest.raises(ValueError, match="is not a saved evaluation"):
        Evaluation.load(path)
