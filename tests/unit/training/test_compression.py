"""Compression of gradients is unbiased, has the variance of its formula, and as many bytes as it says."""

from contextlib import nullcontext, suppress
from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from salmon.errors import SalmonError
from salmon.training import QSGD, EntrywiseAtomo, SpectralAtomo, TernGrad
from salmon.training.compression import (
    NormQuantization,
    atomic_probabilities,
    decompose,
    reshape_to_matrix,
)
from salmon.training.payload import IntegerCode, PayloadReader, PayloadWriter, choose_code
from tests.unit.training.uncoded import without_codes

pytestmark = pytest.mark.slow

SHAPES = [(6, 9), (9,), (4, 3, 3, 3)]
SIZE = 6 * 9 + 9 + 4 * 27
SCHEMES = [
    QSGD(1),
    QSGD(4),
    QSGD(8),
    QSGD(4, bucket=16),
    TernGrad(),
    EntrywiseAtomo(0.1),
    EntrywiseAtomo(5),
    SpectralAtomo(1),
    SpectralAtomo(2.5),
    SpectralAtomo(2, bits=3),
    SpectralAtomo(2, bits=32),
]
magnitudes = st.lists(st.one_of(st.just(0.0), st.floats(1e-6, 100)), min_size=1, max_size=40).map(np.array)


def gradient(seed=0, size=SIZE):
    rng = np.random.default_rng(seed)
    return (rng.standard_normal(size) * rng.exponential(size=size)).astype(np.float32)


def atomic_variance(sizes, probabilities):
    """E|ĝ − g|² = Σ λ²(1/p − 1) for orthogonal atoms."""
    sent = probabilities > 0
    return float((sizes[sent].astype(np.float64) ** 2 * (1 / probabilities[sent] - 1)).sum())


def send_once(scheme, vector, shapes, seed):
    return scheme.expand(scheme.compress(vector, shapes, np.random.default_rng(seed)), shapes)


def send(scheme, vector, shapes, seeds):
    """Gradients that were compressed and expanded again, (seeds, P); the first ones pass through
    their bytes, too, and are the same.
    """
    with without_codes():
        got = np.stack([send_once(scheme, vector, shapes, seed) for seed in range(seeds)])
    for seed in range(min(seeds, 25)):
        assert send_once(scheme, vector, shapes, seed).tolist() == got[seed].tolist()
    return got


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_compression_is_unbiased(scheme):
    # No entry is so small that it would hardly ever be sent: its bias could not be told from few tries.
    vector = (np.sign(gradient()) * np.random.default_rng(1).uniform(0.5, 1.5, SIZE)).astype(np.float32)
    got = send(scheme, vector, SHAPES, 3000).astype(np.float64)
    # Six standard errors in any entry; entries that are always sent vary by rounding alone.
    assert (np.abs(got.mean(axis=0) - vector) <= 6 * got.std(axis=0) / np.sqrt(len(got)) + 1e-5).all()


@given(sizes=magnitudes, share=st.floats(0.01, 1))
def test_probabilities_spend_the_budget(sizes, share):
    budget = share * len(sizes)
    probabilities = atomic_probabilities(sizes, budget)
    assert ((probabilities >= 0) & (probabilities <= 1)).all()
    assert ((probabilities > 0) == (sizes > 0)).all()
    assert probabilities.sum() == pytest.approx(min(budget, np.count_nonzero(sizes)), rel=1e-6)


@settings(max_examples=25)
@given(seed=st.integers(0, 10_000), share=st.floats(0.1, 0.9))
def test_no_other_probabilities_of_the_same_budget_have_less_variance(seed, share):
    sizes = np.random.default_rng(seed).exponential(size=7)
    budget = share * 7
    found = minimize(
        lambda p: (sizes**2 / p).sum(), np.full(7, share), jac=lambda p: -(sizes**2) / p**2, method="SLSQP",
        bounds=[(1e-3, 1)] * 7, constraints={"type": "eq", "fun": lambda p: p.sum() - budget}, options={"maxiter": 300},
    )  # fmt: skip
    assert (sizes**2 / atomic_probabilities(sizes, budget)).sum() <= found.fun * (1 + 1e-6)


@pytest.mark.parametrize("budget", [3, 12])
def test_entrywise_variance_is_the_formula(budget):
    vector = gradient(3, 60)
    got = send(EntrywiseAtomo(budget), vector, [(60,)], 6000).astype(np.float64)
    measured = ((got - vector) ** 2).sum(axis=1)
    expected = atomic_variance(vector, atomic_probabilities(vector, budget))
    assert measured.mean() == pytest.approx(expected, abs=5 * measured.std() / np.sqrt(len(got)))


def test_spectral_variance_is_the_formula_and_below_the_entrywise_one_for_a_matrix_of_low_rank():
    rng = np.random.default_rng(0)
    matrix = (rng.standard_normal((20, 2)) @ rng.standard_normal((2, 20))).astype(np.float32)
    singular = np.linalg.svd(matrix, compute_uv=False)
    got = send(SpectralAtomo(1, bits=32), matrix.ravel(), [(20, 20)], 4000).astype(np.float64)
    measured = ((got - matrix.ravel()) ** 2).sum(axis=1)
    expected = atomic_variance(singular, atomic_probabilities(singular, 1))
    assert measured.mean() == pytest.approx(expected, rel=0.05)
    # Entry-wise with as many numbers as a pair of singular vectors has.
    assert expected < atomic_variance(matrix.ravel(), atomic_probabilities(matrix.ravel(), 40))


@pytest.mark.parametrize("bits", [3, 5, 8])
def test_rounded_singular_vectors_add_only_the_variance_of_their_rounding(bits):
    rng = np.random.default_rng(4)
    left, right = rng.standard_normal(30), rng.standard_normal(50)
    matrix = np.outer(left, right).astype(np.float32)
    # A single pair is always sent: the variance is that of the rounding of both its vectors.
    got = send(SpectralAtomo(1, bits), matrix.ravel(), [(30, 50)], 3000).astype(np.float64)
    measured = ((got - matrix.ravel()) ** 2).sum(axis=1)
    levels = 2 ** (bits - 1) - 1

    def rounding(vector):
        share = np.abs(vector) / np.abs(vector).max() * levels % 1
        return (share * (1 - share)).sum() * (np.abs(vector).max() / levels) ** 2 / (vector @ vector)

    expected = ((1 + rounding(left)) * (1 + rounding(right)) - 1) * float((matrix**2).sum())
    assert measured.mean() == pytest.approx(expected, abs=5 * measured.std() / np.sqrt(len(got)))


def test_singular_vectors_in_eight_bits_are_a_quarter_of_the_bytes_and_hardly_more_variance():
    rng = np.random.default_rng(2)
    matrix = (rng.standard_normal((60, 6)) * [8, 4, 2, 1, 0.5, 0.25] @ rng.standard_normal((6, 80))).astype(np.float32)
    sent, variance = {}, {}
    for bits in (8, 32):
        payloads = [
            SpectralAtomo(2, bits).compress(matrix.ravel(), [(60, 80)], np.random.default_rng(i)) for i in range(2000)
        ]
        sent[bits] = np.mean([len(each) for each in payloads])
        got = send(SpectralAtomo(2, bits), matrix.ravel(), [(60, 80)], 2000)
        variance[bits] = ((got - matrix.ravel()) ** 2).sum(axis=1).mean()
    assert sent[8] < 0.27 * sent[32]
    assert variance[8] < 1.05 * variance[32]


@pytest.mark.parametrize("scheme", [QSGD(8), QSGD(8, bucket=16), SpectralAtomo(2, bits=8)], ids=str)
def test_gradients_that_are_hardly_above_zero_are_rounded_without_overflow(scheme):
    vector = gradient() * np.float32(1e-43)
    assert np.isfinite(send(scheme, vector, SHAPES, 3)).all()
    assert send(scheme, vector, SHAPES, 300).mean(axis=0) == pytest.approx(vector, abs=2e-42)


@pytest.mark.parametrize("size", [1e-30, 1e-12, 1e12, 1e30])
def test_gradients_of_any_magnitude_can_be_decomposed(size):
    matrix = np.random.default_rng(0).standard_normal((9, 6)).astype(np.float32)
    left, right = decompose(matrix * np.float32(size))
    assert left @ right.T / size == pytest.approx(matrix, abs=1e-5)


@pytest.mark.parametrize("shape", [(7, 30), (30, 7), (12, 12), (1, 5)])
def test_a_matrix_is_decomposed_into_its_singular_vectors(shape):
    matrix = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    left, right = decompose(matrix)
    assert left @ right.T == pytest.approx(matrix, abs=1e-5)
    assert np.sort(np.linalg.norm(left, axis=0) * np.linalg.norm(right, axis=0))[::-1] == pytest.approx(
        np.linalg.svd(matrix, compute_uv=False), rel=1e-4
    )
    smaller = right if shape[0] >= shape[1] else left
    assert smaller.T @ smaller == pytest.approx(np.eye(min(shape)), abs=1e-5)


@pytest.mark.parametrize(("scheme", "q"), [(QSGD(1), 2), (TernGrad(), inf), (NormQuantization(3.0), 3)])
def test_quantisation_by_a_norm_is_entrywise_atomo_at_the_budget_of_that_norm(scheme, q):
    vector = gradient(5, 40)
    one, norm = np.abs(vector).sum(), np.linalg.norm(vector, q)
    probabilities = atomic_probabilities(vector, one / norm)
    assert probabilities == pytest.approx(np.abs(vector) / norm, rel=1e-5)
    got = send(scheme, vector, [(40,)], 8000).astype(np.float64)
    assert (got != 0).mean(axis=0) == pytest.approx(probabilities, abs=0.04)
    squared = (got**2).sum(axis=1)
    assert squared.mean() == pytest.approx(one * norm, abs=5 * squared.std() / np.sqrt(len(got)))


def entropy_bits(values):
    """The least bits in which independent values with these frequencies can be written."""
    shares = np.unique(values, return_counts=True)[1] / len(values)
    return -len(values) * (shares * np.log2(shares)).sum()


@pytest.mark.parametrize("bits", [1, 4, 8])
@pytest.mark.parametrize("bucket", [None, 512])
def test_rounded_entries_take_few_more_bits_than_their_entropy(bits, bucket):
    vector = np.random.default_rng(1).standard_normal(40_000).astype(np.float32)
    scheme = QSGD(bits, bucket)
    payload = scheme.compress(vector, [(40_000,)], np.random.default_rng(0))
    buckets = 1 if bucket is None else -(-40_000 // bucket)
    reader = PayloadReader(payload)
    reader.floats(buckets)
    rounded = reader.signed(40_000, scheme.levels)
    assert 8 * len(payload) - 32 * buckets <= 1.07 * entropy_bits(rounded) + 64


def test_smaller_buckets_add_less_variance_and_take_more_bytes():
    vector = gradient(2, 8192)
    sent = [QSGD(4, bucket).compress(vector, [(8192,)], np.random.default_rng(0)) for bucket in (None, 512, 64)]
    errors = [
        ((send(QSGD(4, bucket), vector, [(8192,)], 200) - vector) ** 2).sum(axis=1).mean() for bucket in (None, 512, 64)
    ]
    assert len(sent[0]) < len(sent[1]) < len(sent[2])
    assert errors[0] > errors[1] > errors[2]


def test_the_variance_of_a_bucket_is_the_formula():
    # Σ |v|²/s² · f(1 − f) over buckets, where f is the fraction between two levels.
    vector = gradient(6, 48)
    got = send(QSGD(3, bucket=16), vector, [(48,)], 6000).astype(np.float64)
    norms = np.repeat(np.linalg.norm(vector.reshape(3, 16), axis=1), 16)
    share = np.abs(vector) / norms * 3 % 1
    measured = ((got - vector) ** 2).sum(axis=1)
    expected = ((norms / 3) ** 2 * share * (1 - share)).sum()
    assert measured.mean() == pytest.approx(expected, abs=5 * measured.std() / np.sqrt(len(got)))


integers = st.one_of(
    st.lists(st.integers(-7, 7), min_size=1, max_size=300),
    st.lists(st.integers(-300, 300), min_size=1, max_size=60),
    st.lists(st.sampled_from([0, 0, 0, 0, 0, 0, 0, 1, -1]), min_size=1, max_size=300),
    st.integers(1, 300).map(lambda size: [0] * size),
)


@given(values=integers, levels=st.integers(300, 32_767))
def test_signed_integers_are_read_back(values, levels):
    writer = PayloadWriter()
    writer.signed(np.array(values), levels)
    writer.number(1.5)
    reader = PayloadReader(writer.finish())
    assert reader.signed(len(values), levels).tolist() == values
    assert reader.number() == 1.5


@given(values=st.lists(st.integers(-1, 1), min_size=0, max_size=300))
def test_signs_are_read_back(values):
    writer = PayloadWriter()
    writer.signed(np.array(values, dtype=np.int64), 1)
    assert PayloadReader(writer.finish()).signed(len(values), 1).tolist() == values


@given(
    values=st.lists(st.integers(0, 1 << 26), min_size=1, max_size=40),
    gamma=st.booleans(),
    order=st.integers(10, 31),
)
def test_every_code_reads_back_what_it_wrote_in_as_many_bits_as_it_counts(values, gamma, order):
    code, array = IntegerCode(gamma, order), np.array(values)
    writer = PayloadWriter()
    writer._write_naturals(code, array)
    reader = PayloadReader(writer.finish())
    assert reader.naturals(len(values)).tolist() == values
    assert reader._at == 6 + code.count_bits(array)


@given(values=st.lists(st.integers(0, 2000), min_size=1, max_size=200))
def test_the_chosen_code_is_as_short_as_elias_gamma(values):
    array = np.array(values)
    chosen, length = choose_code(array)
    assert length == chosen.count_bits(array)
    if array.mean() < 3:
        assert length <= IntegerCode(gamma=True, order=0).count_bits(array)


@given(values=st.lists(st.booleans(), max_size=200), rare=st.booleans())
def test_masks_are_read_back(values, rare):
    given_values = np.array(values, dtype=bool) & (
        np.arange(len(values)) % 20 == 3 if rare else np.ones(len(values), bool)
    )
    for mask in (given_values, ~given_values):
        writer = PayloadWriter()
        writer.mask(mask)
        writer.bits(np.array([1], dtype=np.uint8))
        reader = PayloadReader(writer.finish())
        assert reader.mask(len(mask)).tolist() == mask.tolist()
        assert reader.bits(1).tolist() == [1]


@given(size=st.integers(1, 500), data=st.data())
def test_positions_are_read_back(size, data):
    positions = sorted(data.draw(st.sets(st.integers(0, size - 1))))
    writer = PayloadWriter()
    writer.positions(np.array(positions, dtype=np.int64))
    assert PayloadReader(writer.finish()).positions().tolist() == positions


@settings(max_examples=50)
@given(
    seed=st.integers(0, 1000),
    size=st.integers(1, 400),
    scheme=st.sampled_from([QSGD(1), QSGD(4, bucket=7), QSGD(8), QSGD(16), QSGD(8, bucket=64)]),
)
def test_decoded_levels_equal_encoded_levels(seed, size, scheme):
    rng = np.random.default_rng(seed)
    levels = rng.integers(-scheme.levels, scheme.levels + 1, size) * (rng.random(size) < rng.random())
    # A vector that lies on the levels of its buckets is rounded to itself: any wrong bit would show.
    vector = np.zeros(size, dtype=np.float32)
    vector[0] = 1.0
    assert scheme.expand(scheme.compress(vector, [(size,)], rng), [(size,)]).tolist() == vector.tolist()
    writer = PayloadWriter()
    writer.signed(levels, scheme.levels)
    assert PayloadReader(writer.finish()).signed(size, scheme.levels).tolist() == levels.tolist()


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_a_gradient_of_zeros_stays_zero(scheme):
    assert (send(scheme, np.zeros(SIZE, dtype=np.float32), SHAPES, 2) == 0).all()


def test_a_convolution_is_reshaped_to_a_matrix_of_half_its_filters():
    for shape, matrix in (((4, 6, 3, 3), (12, 18)), ((3, 1, 3, 3), (3, 9))):
        assert reshape_to_matrix(np.zeros(shape, dtype=np.float32)).shape == matrix
    assert reshape_to_matrix(np.zeros(5, dtype=np.float32)) is None


NAN = np.full(100, np.nan, dtype=np.float32)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_gradients_whose_squares_overflow_are_sent_like_smaller_ones(scheme):
    # A power of two, so that nothing is rounded differently.
    factor = np.float32(2.0**90)
    small, large = (send_once(scheme, vector, SHAPES, 0) for vector in (gradient(), gradient() * factor))
    assert np.count_nonzero(small)
    assert (large / factor).tolist() == pytest.approx(small.tolist(), rel=1e-5)


@pytest.mark.parametrize("scheme", SCHEMES, ids=str)
def test_gradients_too_large_to_be_encoded_are_refused_without_warnings(scheme):
    largest = np.sign(gradient()) * np.finfo(np.float32).max
    for share in (0.001, 0.01, 0.03, 0.1, 0.3):
        with suppress(SalmonError):
            scheme.compress((largest * share).astype(np.float32), SHAPES, np.random.default_rng(0))
    # TernGrad's norm is the largest entry, which always fits.
    with nullcontext() if isinstance(scheme, TernGrad) else pytest.raises(SalmonError, match="lower the learning rate"):
        scheme.compress(largest.astype(np.float32), SHAPES, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (lambda: QSGD(0), "0 bits"),
        (lambda: QSGD(17), "17 bits"),
        (lambda: QSGD(4, bucket=0), "bucket of 0"),
        (lambda: EntrywiseAtomo(0), "budget of 0"),
        (lambda: SpectralAtomo(-1), "budget of -1"),
        (lambda: SpectralAtomo(2, bits=1), "1 bits"),
        (lambda: SpectralAtomo(1).compress(NAN, [(10, 10)], np.random.default_rng(0)), "learning rate"),
    ],
)
def test_impossible_settings_and_gradients_are_refused(wrong, words):
    with pytest.raises(SalmonError, match=words):
        wrong()
