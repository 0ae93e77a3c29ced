"""What answers say and how sure they are of it: held-out accuracy, noise ceiling, choices, the map as a figure."""

from salmon.analysis.ceiling import NoiseCeiling, noise_ceiling
from salmon.analysis.choice import Choice, choose_dimension, choose_noise_by_accuracy
from salmon.analysis.fitting import Progress, analyse
from salmon.analysis.held_out import HeldOut, Interval, cross_validate, grouped_interval
from salmon.analysis.report import FitOptions, FitReport

__all__ = [
    "Choice",
    "FitOptions",
    "FitReport",
    "HeldOut",
    "Interval",
    "NoiseCeiling",
    "Progress",
    "analyse",
    "choose_dimension",
    "choose_noise_by_accuracy",
    "cross_validate",
    "grouped_interval",
    "noise_ceiling",
]
