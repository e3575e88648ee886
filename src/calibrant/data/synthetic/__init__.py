"""Synthetic outliers, made from a user's own inputs: one file for each way, and the default mixtures."""

from calibrant.data.synthetic.base import Synthesizer, kind_of
from calibrant.data.synthetic.mixture import DEFAULT_MIXTURES, synthesize

__all__ = ["DEFAULT_MIXTURES", "Synthesizer", "kind_of", "synthesize"]
