"""Draws of a run: recorded values, statistics of the steps, predictions."""

from .predict import Prediction as Prediction
from .record import Draws as Draws
