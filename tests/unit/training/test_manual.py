"""The manual of distributed training says what was measured."""

from benchmarks.training.tables import BLOCKS, MANUAL, blocks, rewritten
from tests.program import REPOSITORY

TEXT = (REPOSITORY / MANUAL).read_text()


def test_the_tables_of_the_manual_are_those_of_the_figures_beside_it():
    assert blocks(rewritten(TEXT, REPOSITORY / MANUAL.parent / "training")) == blocks(TEXT)


def test_every_table_of_figures_is_in_the_manual_once():
    assert sorted(blocks(TEXT)) == sorted(BLOCKS)
    assert TEXT.count("<!-- figures:") == len(BLOCKS) == TEXT.count("<!-- end -->")
    outside = rewritten(TEXT, REPOSITORY / MANUAL.parent / "training")
    for block in blocks(outside).values():
        outside = outside.replace(block, "")
    # The one table without figures says what to take.
    assert outside.count("|---|") == 1


def test_a_figure_changed_by_hand_is_noticed():
    block = blocks(TEXT)["growth on the linear network"]
    changed = TEXT.replace(block, block.replace("1", "2", 1))
    assert changed != TEXT
    assert blocks(rewritten(changed, REPOSITORY / MANUAL.parent / "training")) != blocks(changed)
