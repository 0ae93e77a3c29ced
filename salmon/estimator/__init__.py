"""Fit embeddings behind scikit-learn's interface: `OrdinalEmbedding`, and cross-validation of its options."""

from salmon.estimator.coding import RECOMMENDED_NOISE
from salmon.estimator.cross_validation import (
    answer_losses,
    choose_noise,
    grouped_folds,
    noise_candidates,
    triple_groups,
)
from salmon.estimator.embedding import OrdinalEmbedding

__all__ = [
    "RECOMMENDED_NOISE",
    "OrdinalEmbedding",
    "answer_losses",
    "choose_noise",
    "grouped_folds",
    "noise_candidates",
    "triple_groups",
]
