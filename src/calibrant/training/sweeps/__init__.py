"""Sweeps: what is tried (`grid`), what came out (`record`), and running it on any executor (`sweep`)."""
