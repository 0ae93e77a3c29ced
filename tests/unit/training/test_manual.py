"""The tables in the manual of training are generated from the recorded figures."""

import re
from importlib.util import find_spec

from benchmarks.training.tables import BLOCKS, FIGURES, MANUAL, blocks, rewrite
from tests.program import REPOSITORY

TEXT = (REPOSITORY / MANUAL).read_text()


def test_tables_in_the_manual_match_the_json_files():
    assert blocks(rewrite(TEXT, REPOSITORY / MANUAL.parent / "training")) == blocks(TEXT)


def test_every_generated_table_is_in_the_manual_once():
    assert sorted(blocks(TEXT)) == sorted(BLOCKS)
    assert TEXT.count("<!-- figures:") == len(BLOCKS) == TEXT.count("<!-- end -->")
    outside = rewrite(TEXT, REPOSITORY / MANUAL.parent / "training")
    for block in blocks(outside).values():
        outside = outside.replace(block, "")
    # The only table without figures recommends methods.
    assert outside.count("|---|") == 1


def test_a_figure_edited_by_hand_is_detected():
    block = blocks(TEXT)["growth on the linear network"]
    changed = TEXT.replace(block, block.replace("1", "2", 1))
    assert changed != TEXT
    assert blocks(rewrite(changed, REPOSITORY / MANUAL.parent / "training")) != blocks(changed)


def test_the_command_that_repeats_each_table_is_named():
    named = set(re.findall(r"`python -m benchmarks\.training\.(\w+)`", TEXT.partition("## Reproducing the figures")[2]))
    assert {*FIGURES.values(), "tables"} - named == set()
    assert [name for name in named if find_spec(f"benchmarks.training.{name}") is None] == []
