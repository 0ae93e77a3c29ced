"""Ids are short names of small letters and digits; those of imports follow from what is imported."""

import re

from salmon.wire.keys import (
    NOBODY,
    derive_experiment_id,
    derive_participant_id,
    draw_experiment_id,
    draw_participant_id,
    draw_tryout_id,
    is_tryout,
)


def test_drawn_ids_have_the_length_of_their_kind_and_differ() -> None:
    for draw, length in ((draw_participant_id, 12), (draw_tryout_id, 12), (draw_experiment_id, 10)):
        drawn = [draw() for _ in range(200)]
        assert all(re.fullmatch(f"[a-z0-9]{{{length}}}", identifier) for identifier in drawn)
        assert len(set(drawn)) == 200
    assert is_tryout(draw_tryout_id())
    assert not is_tryout(NOBODY)


def test_an_import_that_is_repeated_by_a_later_version_finds_its_own_ids() -> None:
    assert derive_participant_id("experiment:ada") == "mvkbzi5kdcau"
    assert derive_experiment_id("digest:colors:0") == "hhychw909v"
