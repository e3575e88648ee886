"""Ratios of speed, each measured side by side in one run: `python -m benchmarks [NAME ...]`."""
