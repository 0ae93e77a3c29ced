"""What is written and read again is the same; what is broken is said."""

import random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from salmon.errors import Problem, SpecError
from salmon.spec import Spec, check, dump_spec, parse_spec, read_stored_spec, targets_of
from tests.strategies import EXAMPLES, broken, specs, texts

pytestmark = pytest.mark.slow

#: Words of programs that no experimenter should meet.
_JARGON = (
    "Traceback",
    "Error",
    "validation",
    "Input should",
    "_parsing",
    "NoneType",
    "tag:yaml",
    "pydantic",
    "Scalar",
    "{label}",
    "{found}",
)


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(specs())
def test_a_spec_that_is_written_and_read_is_the_same(spec: Spec):
    assert parse_spec(dump_spec(spec), stored=True).spec == spec
    assert Spec.from_json(spec.to_json()) == spec
    assert Spec.from_json(spec.to_json()).to_json() == spec.to_json()
    assert read_stored_spec(spec.to_json()) == read_stored_spec(dump_spec(spec)) == spec
    assert sum(spec.probabilities.values()) == 100
    assert [target.filename for target in targets_of(spec)] == list(spec.targets)


@settings(max_examples=300)
@given(
    st.one_of(
        st.text(max_size=80),
        st.binary(max_size=80),
        texts().map(lambda text: f"targets: [a, b, c]\nhtml: {{title: {text}}}"),
    )
)
def test_any_text_is_either_a_spec_or_a_list_of_problems(source: str | bytes):
    _assert_honest(source)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(10))
def test_ten_thousand_broken_files_get_sentences_and_never_a_traceback(seed: int):
    sources = [path.read_bytes() for path in EXAMPLES]
    chance = random.Random(seed)
    assert sum(_assert_honest(broken(chance.choice(sources), chance)) for _ in range(1000)) > 500, (
        "most of these files are broken"
    )


def _assert_honest(source: str | bytes) -> bool:
    """Whether the file is refused; its problems are sentences with a place inside the
    file, whichever way it is read.
    """
    problems = check(source)
    text = source if isinstance(source, str) else source.decode("latin-1")
    for problem in problems:
        assert isinstance(problem, Problem)
        assert problem.message.endswith("."), problem
        assert not any(word in problem.message.split("'")[0] for word in _JARGON), problem
        assert 0 <= problem.line <= len(text.splitlines()) + 2, problem
        assert 0 <= problem.column <= max(map(len, text.split("\n")), default=0) + 2, problem
    assert list(problems) == sorted(problems, key=lambda problem: (problem.line, problem.column))
    if any(not problem.warning for problem in problems):
        with pytest.raises(SpecError) as caught:
            parse_spec(source)
        assert caught.value.problems == problems
        return True
    parsed = parse_spec(source)
    assert parsed.warnings == problems
    assert parse_spec(dump_spec(parsed.spec)).spec == read_stored_spec(parsed.spec.to_json()) == parsed.spec
    return False
