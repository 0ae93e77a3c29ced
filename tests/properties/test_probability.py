"""Probabilities sum to one and fall with the winner's distance, whatever the noise model and its parameters."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from salmon.noise import CKL, GNMDS, SOE, STE, TSTE, Logistic, PowerTSTE

lapses = st.floats(0, 0.4)
parameters = st.floats(0.01, 100)
models = st.one_of(
    st.builds(TSTE, lapse=lapses, alpha=parameters),
    st.builds(PowerTSTE, lapse=lapses, k=parameters),
    st.builds(CKL, lapse=lapses, mu=parameters),
    st.builds(Logistic, lapse=lapses, slope=parameters),
    st.builds(STE, lapse=lapses),
    st.builds(GNMDS, lapse=lapses),
    st.builds(SOE, lapse=lapses),
)
distances = st.floats(0, 1e12)


@given(model=models, d2_winner=distances, d2_loser=distances)
def test_the_two_feet_of_a_query_share_one_whole(model, d2_winner, d2_loser):
    near, far = np.array([d2_winner]), np.array([d2_loser])
    assert abs(float(model.probability(near, far)[0] + model.probability(far, near)[0]) - 1) < 1e-12


@given(model=models, d2_winner=distances, d2_loser=distances, farther=distances)
def test_the_chance_never_rises_with_the_winners_distance(model, d2_winner, d2_loser, farther):
    loser = np.array([d2_loser])
    before = model.probability(np.array([d2_winner]), loser)
    assert model.probability(np.array([max(d2_winner, farther)]), loser)[0] <= before[0] + 1e-15


@given(model=models, d2=st.floats(0, 1e6), factor=st.floats(1.05, 4))
def test_the_nearer_foot_has_the_better_chance(model, d2, factor):
    near, far = np.array([d2]), np.array([d2 * factor + 0.1])
    assert model.probability(near, far)[0] > 0.5
