"""The alien eggs, answers about them, and an estimator fitted to these answers."""

import pytest

from salmon import OrdinalEmbedding
from salmon.simulate import egg_world, stream


@pytest.fixture(scope="module")
def eggs():
    return egg_world(30)


@pytest.fixture(scope="module")
def answers(eggs):
    return eggs.answer(eggs.random_queries(900, stream(0, "queries")), stream(0, "answers"))


@pytest.fixture(scope="module")
def fitted(answers):
    return OrdinalEmbedding(random_state=0).fit(answers)
