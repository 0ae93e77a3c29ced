"""Worlds whose truth is known, and people who answer in them: everything in Salmon that simulates uses these."""

from salmon.simulate.judging import Judge, bayes_accuracy
from salmon.simulate.participants import Participant, Reaction
from salmon.simulate.streams import STREAMS, stream
from salmon.simulate.worlds import (
    EGG_COUNTS,
    DistanceLogistic,
    Judgement,
    ModelJudgement,
    RatioSigmoid,
    World,
    clustered_world,
    egg_world,
    given_world,
    logistic_world,
    noisy_world,
    random_world,
)

__all__ = [
    "EGG_COUNTS",
    "STREAMS",
    "DistanceLogistic",
    "Judge",
    "Judgement",
    "ModelJudgement",
    "Participant",
    "RatioSigmoid",
    "Reaction",
    "World",
    "bayes_accuracy",
    "clustered_world",
    "egg_world",
    "given_world",
    "logistic_world",
    "noisy_world",
    "random_world",
    "stream",
]
