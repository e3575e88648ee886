"""Synthetic outliers, made from a user's own inputs: one file per way to make them, and the mixture that is the default."""

from calibrant.data.synthetic.base import Synthesizer, kind_of
from calibrant.data.synthetic.mixture import DEFAULT_MIXTURES, synthesize

__all__ = ["DEFAULT_MIXTURES", "Synthesizer", "kind_of", "synthesize"]
