"""Fit embeddings to answers, compute their posteriors, and measure how well they predict."""

from salmon.learning.objective import Triplets, accuracy, check_triplets, log_loss
from salmon.learning.posterior import Posterior, laplace
from salmon.learning.refit import Fit, fit

__all__ = ["Fit", "Posterior", "Triplets", "accuracy", "check_triplets", "fit", "laplace", "log_loss"]
