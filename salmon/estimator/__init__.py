"""`OrdinalEmbedding`: an embedding from triplets behind scikit-learn's interface."""

from salmon.estimator.embedding import OrdinalEmbedding
from salmon.estimator.holding_out import answer_losses, choose_noise, grouped_folds, noise_candidates, triple_groups
from salmon.estimator.noises import RECOMMENDED_NOISE

__all__ = [
    "RECOMMENDED_NOISE",
    "OrdinalEmbedding",
    "answer_losses",
    "choose_noise",
    "grouped_folds",
    "noise_candidates",
    "triple_groups",
]
