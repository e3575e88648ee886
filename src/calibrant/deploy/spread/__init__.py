"""Prediction on a Ray cluster: parts of Parquet files, decided by workers and written once each, whatever dies."""

from calibrant.deploy.spread.ray_predict import RayPrediction, SpreadCount

__all__ = ["RayPrediction", "SpreadCount"]
