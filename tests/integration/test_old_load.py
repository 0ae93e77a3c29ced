"""Many scripts of the first Salmon at once, on the real program."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path

import httpx

from benchmarks.participants.old_script import old_load
from tests.program import Program


def test_twenty_users_who_do_not_think_leave_a_hundred_answers_each_once(program: Program, tmp_path: Path) -> None:
    spec = tmp_path / "many.yaml"
    spec.write_text("targets: 12\nhtml: {max_queries: 0}\nsamplers: {ARR: {}, random: {class: Random}}\n")
    program.launch(spec)
    diary = asyncio.run(old_load(program.address, None, users=20, answers=5))
    assert diary.errors == []
    assert len(diary.answered) == 100
    rows = httpx.get(f"{program.address}/responses", auth=program.add_user(), timeout=30).raise_for_status().json()
    assert Counter(row["puid"] for row in rows) == {str(user): 5 for user in range(20)}
    assert [row["num_responses"] for row in rows] == list(range(1, 101))
    assert all({row["winner"], row["loser"]} == {row["left"], row["right"]} for row in rows)
