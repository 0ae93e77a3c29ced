"""Fit embeddings behind scikit-learn's interface: `OrdinalEmbedding`, and cross-validation of its options."""

from salmon.estimator.cross_validation import (
    answer_losses,
    choose_noise,
    grouped_folds,
    noise_candidates,
    triple_groups,
)
from salmon.estimator.embedding import OrdinalEmbedding
from salmon.learning.noise_learning import RECOMMENDED_NOISE

__all__ = [
    "RECOMMENDED_NOISE",
    "OrdinalEmbedding",
    "answer_losses",
    "choose_noise",
    "grouped_folds",
    "noise_candidates",
    "triple_groups",
]
