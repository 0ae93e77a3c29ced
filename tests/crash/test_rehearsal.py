"""`salmon rehearse` walks people through a whole study on a server of its own, and leaves nothing behind."""

import csv
import subprocess
import sys
from collections import Counter
from pathlib import Path

import psutil

from tests.program import REPOSITORY

STUDY = """
targets: 9
html: {max_queries: 10}
consent: {text: I agree.}
practice: {queries: [[0, 1, 2, 1]]}
comprehension: {questions: [{text: Which?, options: [a, b], answer: b}]}
questions: [{name: age, text: Age?, type: number, required: true}]
checks: {catch: 10%, on_failure: screen_out}
recruitment: {platform: prolific, completion_code: DONE42, screen_out_code: OUT43}
payment: {reward: 1.50}
"""


def rehearse(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        (sys.executable, "-m", "salmon", "rehearse", *arguments),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )


def test_a_prolific_study_is_walked_from_the_link_to_the_code(tmp_path: Path) -> None:
    spec, out = tmp_path / "study.yaml", tmp_path / "files"
    spec.write_text(STUDY)
    done = rehearse(str(spec), "--people", "12", "--leaving", "0.1", "--pace", "100", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 stopped by an error" in done.stdout
    assert "https://app.prolific.com/submissions/complete?cc=DONE42" in done.stdout
    people, answers = (
        list(csv.DictReader((out / name).read_text().splitlines())) for name in ("participants.csv", "responses.csv")
    )
    statuses = Counter(row["status"] for row in people)
    assert len(people) == 12
    assert {row["source"] for row in people} == {"prolific"}
    assert statuses["active"] == 1  # who left
    assert statuses["redirected"] + statuses["failed_checks"] == 11
    paid = statuses["redirected"]
    assert f"Payment: {paid} pay ({1.5 * paid:.2f} GBP)" in done.stdout
    payment = list(csv.DictReader((out / "payment.csv").read_text().splitlines()))
    assert sum(row["action"] == "pay" for row in payment) == paid
    assert len(answers) == sum(int(row["answers"]) for row in people)
    arguments = [" ".join(process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])]
    assert not [line for line in arguments if "salmon-rehearsal-" in line]


def test_what_stops_people_is_said_and_the_exit_code_is_one(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("targets: 9\nsamplers: {Adaptiv: {}}\n")
    refused = rehearse(str(wrong))
    assert refused.returncode == 1
    assert "Adaptive" in refused.stderr
    existing = rehearse(str(REPOSITORY / "examples/colors/experiment.yaml"), "--data", str(tmp_path))
    assert existing.returncode == 1
    assert "exists already" in existing.stderr
