"""Many scripts of the first Salmon at once, and its files, on the real program."""

import asyncio
from collections import Counter
from pathlib import Path

import httpx

from benchmarks.participants.old_script import old_load
from tests.old_scripts import old_answers, old_backup
from tests.program import Program


def test_twenty_users_who_do_not_think_leave_a_hundred_answers_each_once(program: Program) -> None:
    program.launch_text("many", "targets: 12\nhtml: {max_queries: 0}\nsamplers: {ARR: {}, random: {class: Random}}\n")
    diary = asyncio.run(old_load(program.address, None, users=20, answers=5))
    assert (diary.errors, len(diary.answered)) == ([], 100)
    rows = httpx.get(f"{program.address}/responses", auth=program.add_user(), timeout=30).raise_for_status().json()
    assert Counter(row["puid"] for row in rows) == {str(user): 5 for user in range(20)}
    assert [row["num_responses"] for row in rows] == list(range(1, 101))
    assert all({row["winner"], row["loser"]} == {row["left"], row["right"]} for row in rows)


def test_files_come_in_by_the_command_line_with_sentences_about_what_is_not_known(
    program: Program, tmp_path: Path
) -> None:
    backup, config, table = tmp_path / "exp-2023-11-14T22:13-salmon-1.0.0.rdb", tmp_path / "c.yaml", tmp_path / "r.csv"
    backup.write_bytes(old_backup({"targets": ["a", "b", "c", "d", "e", "f"]}, old_answers(12)).bytes())
    done = program.run("import", str(backup))
    assert done.returncode == 0, done.stderr
    assert "12 answers of 3 participants" in " ".join(done.stderr.split())
    assert done.stdout.strip().endswith("/e/exp-2023-11-14t22-13-salmon-1/")
    table.write_text("head,winner,loser\n0,1,2\n1,2,0\n")
    config.write_text("targets: [red, green, blue]\n")
    done = program.run("import", str(table), "--config", str(config), "--name", "colours")
    assert done.stdout.strip().endswith("/e/colours/")
    assert "sides were drawn" in " ".join(done.stderr.split())
    again = program.run("import", str(table), "--config", str(config), "--name", "colours")
    assert again.returncode != 0
    assert "already" in again.stderr
    table.write_text("head,winner,loser\n0,1\n")
    wrong = program.run("import", str(table))
    assert wrong.returncode != 0
    assert "r.csv:2: The row has 2 cells" in " ".join(wrong.stderr.split())
    assert "Traceback" not in again.stderr + wrong.stderr
