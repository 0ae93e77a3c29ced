"""docs/security.md answers every requirement of ASVS 4.0.3 level 2, and names tests and files that exist."""

import re

from tests.program import REPOSITORY

MANUAL = (REPOSITORY / "docs" / "security.md").read_text()

#: Section -> the requirements of levels 1 and 2 in it.
LEVEL_2 = {
    "1.1": range(1, 8), "1.2": range(1, 5), "1.4": (1, 4, 5), "1.5": range(1, 5), "1.6": range(1, 5), "1.7": (1, 2),
    "1.8": (1, 2), "1.9": (1, 2), "1.10": (1,), "1.11": (1, 2), "1.12": (2,), "1.14": range(1, 7),
    "2.1": range(1, 13), "2.2": range(1, 4), "2.3": range(1, 4), "2.4": range(1, 6), "2.5": range(1, 8),
    "2.6": range(1, 4), "2.7": range(1, 7), "2.8": range(1, 8), "2.9": range(1, 4), "2.10": range(1, 5),
    "3.1": (1,), "3.2": range(1, 5), "3.3": range(1, 5), "3.4": range(1, 6), "3.5": range(1, 4), "3.7": (1,),
    "4.1": (1, 2, 3, 5), "4.2": (1, 2), "4.3": range(1, 4),
    "5.1": range(1, 6), "5.2": range(1, 9), "5.3": range(1, 11), "5.4": range(1, 4), "5.5": range(1, 5),
    "6.1": range(1, 4), "6.2": range(1, 7), "6.3": (1, 2), "6.4": (1, 2),
    "7.1": range(1, 5), "7.2": (1, 2), "7.3": (1, 3, 4), "7.4": range(1, 4),
    "8.1": range(1, 5), "8.2": range(1, 4), "8.3": range(1, 9),
    "9.1": range(1, 4), "9.2": range(1, 5), "10.2": (1, 2), "10.3": range(1, 4), "11.1": range(1, 9),
    "12.1": range(1, 4), "12.2": (1,), "12.3": range(1, 7), "12.4": (1, 2), "12.5": (1, 2), "12.6": (1,),
    "13.1": (1, 3, 4, 5), "13.2": (1, 2, 3, 5, 6), "13.3": (1, 2), "13.4": (1, 2),
    "14.1": range(1, 5), "14.2": range(1, 7), "14.3": (2, 3), "14.4": range(1, 8), "14.5": range(1, 5),
}  # fmt: skip


def rows() -> list[tuple[list[str], str, str]]:
    found = re.findall(r"^\| ([\d., ]+) \| (yes|n/a) \| (.+) \|$", MANUAL, re.MULTILINE)
    return [(numbers.split(", "), answer, reason) for numbers, answer, reason in found]


def test_every_requirement_is_answered_once() -> None:
    wanted = [f"{section}.{number}" for section, numbers in LEVEL_2.items() for number in numbers]
    assert sorted(number for numbers, _, _ in rows() for number in numbers) == sorted(wanted)


def test_every_answer_has_a_place_or_a_reason() -> None:
    assert [numbers for numbers, _, reason in rows() if len(reason) < 6] == []


def test_every_file_that_the_page_names_exists() -> None:
    named = re.findall(r"`((?:tests|docs|frontend|salmon|docker|requirements)/[\w./-]*)`", MANUAL)
    assert len(named) > 60
    assert [name for name in named if not (REPOSITORY / name).exists()] == []
