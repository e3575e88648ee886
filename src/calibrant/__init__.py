"""Classifiers that know when they don't know."""

__version__ = "0.1.0"
