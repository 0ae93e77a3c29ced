"""Slow, obvious versions of what the library computes quickly: one loop a sum, as the formulas are written."""

from collections import Counter
from collections.abc import Iterable
from itertools import combinations
from math import exp, log, sqrt

import numpy as np

from frontend.store.answers import MINUTE_MS, counters_of
from salmon.records import Answer


def finite_difference(function, coordinates, step=1e-6):
    """The gradient of a function of an array, by central differences, entry by entry."""
    gradient = np.zeros_like(coordinates)
    for place in np.ndindex(*coordinates.shape):
        up, down = coordinates.copy(), coordinates.copy()
        up[place] += step
        down[place] -= step
        gradient[place] = (function(up) - function(down)) / (2 * step)
    return gradient


def d2(coordinates, first, second):
    return float(((coordinates[first] - coordinates[second]) ** 2).sum())


def chance(model, coordinates, head, winner, loser):
    """The noise model's own chance, one triplet at a time."""
    pair = np.array([d2(coordinates, head, winner)]), np.array([d2(coordinates, head, loser)])
    return float(model.probability(*pair)[0])


def entropy(p):
    return 0.0 if p <= 0 or p >= 1 else -p * log(p) - (1 - p) * log(1 - p)


def head_posterior(model, coordinates, triplets, head):
    """Where a head sits among the n current positions, from its own answers: Bayes' rule with logarithms."""
    n = len(coordinates)
    logs = [0.0] * n
    for h, winner, loser in triplets:
        if h == head:
            for place in range(n):
                logs[place] += log(chance(model, coordinates, place, winner, loser))
    largest = max(logs)
    weights = [exp(value - largest) for value in logs]
    return [weight / sum(weights) for weight in weights]


def information_gain(model, coordinates, triplets, query):
    """H₂ of the mean chance minus the mean H₂, over where the head may sit."""
    head, first, second = query
    posterior = head_posterior(model, coordinates, triplets, head)
    chances = [chance(model, coordinates, place, first, second) for place in range(len(coordinates))]
    mean = sum(t * p for t, p in zip(posterior, chances, strict=True))
    return entropy(mean) - sum(t * entropy(p) for t, p in zip(posterior, chances, strict=True))


def all_queries(n):
    """Every head with every unordered pair of other targets."""
    return [(h, b, c) for h in range(n) for b, c in combinations([t for t in range(n) if t != h], 2)]


def log_odds(model, coordinates, head, winner, loser):
    near, far = np.array([d2(coordinates, head, winner)]), np.array([d2(coordinates, head, loser)])
    return float(model.remoteness(far)[0] - model.remoteness(near)[0])


def log_odds_gradient(model, coordinates, head, winner, loser):
    """The gradient of f by all n·d coordinates, by central differences."""
    return finite_difference(lambda placed: log_odds(model, placed, head, winner, loser), coordinates).ravel()


def fisher_weight(model, coordinates, head, winner, loser):
    p = chance(model, coordinates, head, winner, loser)
    share = 1 - 2 * model.lapse
    s = (p - model.lapse) / share
    return (share * s * (1 - s)) ** 2 / (p * (1 - p))


def posterior_covariance(model, coordinates, triplets, ridge):
    """(ridge·I + Σ w g gᵀ)⁻¹, a rank-one term at a time."""
    precision = ridge * np.eye(coordinates.size)
    for head, winner, loser in triplets:
        g = log_odds_gradient(model, coordinates, head, winner, loser)
        precision += fisher_weight(model, coordinates, head, winner, loser) * np.outer(g, g)
    return np.linalg.inv(precision)


def design_target(model, coordinates, covariance):
    """M = Σ c g gᵀ over every query, c = exp(−f²/2v)/√v with v = gᵀΣg and f the log-odds."""
    size = coordinates.size
    target = np.zeros((size, size))
    for head, first, second in all_queries(len(coordinates)):
        g = log_odds_gradient(model, coordinates, head, first, second)
        f = log_odds(model, coordinates, head, first, second)
        v = max(float(g @ covariance @ g), 1e-12)
        target += exp(-f * f / (2 * v)) / sqrt(v) * np.outer(g, g)
    return target


def recount(answers: Iterable[Answer]) -> dict[str, int]:
    """All counters of answers in the order of the stream, except `completed`: those
    that recording each of them moves.
    """
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    for answer in answers:
        counts.update(counters_of(answer))
        if answer.served.participant not in seen:
            seen.add(answer.served.participant)
            counts[f"began:{answer.received_ms // MINUTE_MS}"] += 1
    return dict(counts)
