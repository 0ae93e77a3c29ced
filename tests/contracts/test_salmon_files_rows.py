"""No row of what users of the first Salmon count on is forgotten."""

import pytest

from tests.contracts.salmon_rows import ROWS, covered


@pytest.mark.parametrize("part", ROWS)
def test_every_row_is_held_by_a_test(part: str) -> None:
    assert covered()[part] == set(ROWS[part])
