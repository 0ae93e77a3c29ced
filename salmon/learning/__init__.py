"""Fit embeddings to answers, compute their posteriors, and measure how well they predict."""

from salmon.learning.objective import accuracy, log_loss
from salmon.learning.posterior import Posterior, laplace
from salmon.learning.refit import Fit, fit
from salmon.learning.triplets import Triplets, check_triplets

__all__ = ["Fit", "Posterior", "Triplets", "accuracy", "check_triplets", "fit", "laplace", "log_loss"]
