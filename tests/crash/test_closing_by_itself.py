"""A running experiment closes by the accuracy that further answers would bring; nobody who has begun is cut off."""

import asyncio
import csv
import io
from pathlib import Path

import httpx

from salmon.rehearsal import RehearsedStudy, draw_people
from salmon.simulate import random_world
from salmon.spec import parse_spec
from tests.program import Program, poll

PEOPLE, TRIALS = 20, 100
STUDY = f"""
targets: 8
html: {{max_queries: {TRIALS}}}
samplers: {{Adaptive: {{}}, Random: {{}}}}
stopping: {{accuracy_gain_below: 4%, per: 200}}
"""


def test_it_closes_while_people_answer_and_they_all_finish(tmp_path: Path) -> None:
    with Program(tmp_path / "data") as program:
        login = program.add_user()
        link = program.launch_text("study", STUDY)
        program.wait_until_ready()
        given = 0

        def heard() -> None:
            nonlocal given
            given += 1

        people = draw_people(random_world(8, 2, 5), [f"{link}?puid=p{number}" for number in range(PEOPLE)], {}, seed=5)
        walks = asyncio.run(RehearsedStudy(parse_spec(STUDY).spec, pace=8, heard=heard).run(people))
        assert [walk.outcome for walk in walks] == ["completed"] * PEOPLE, [walk.said for walk in walks]
        assert {walk.answers for walk in walks} == {TRIALS}

        with httpx.Client(base_url=program.address, auth=login, timeout=20) as client:
            overview = lambda: client.get("/api/experiments/study/overview").raise_for_status().json()  # noqa: E731
            poll(lambda: overview()["state"] == "closed", "the experiment to close by itself", seconds=60)
            changes = client.get("/api/experiments/study/changes").raise_for_status().json()
            (closing,) = (line for line in changes if "by itself" in line["detail"])
            assert closing["by"] == "stopping.accuracy_gain_below"
            assert "200 more bring less than 4 points of accuracy" in closing["detail"]
            said = " ".join(sentence["what"] for sentence in overview()["sentences"])
            assert "closed by itself" in said
        (late,) = asyncio.run(
            RehearsedStudy(parse_spec(STUDY).spec, pace=100, heard=heard).run(
                draw_people(random_world(8, 2, 5), [f"{link}?puid=late"], {}, seed=6)
            )
        )
        assert (late.outcome, late.answers) == ("failed", 0)
        assert "This experiment has ended." in late.said
        rows = list(csv.DictReader(io.StringIO(program.export("study", "responses.csv", login).decode())))
        assert len(rows) == given == PEOPLE * TRIALS
        received = [1000 * float(row["time_received"]) for row in rows]
        assert received[0] < closing["at_ms"] < received[-1], "it closed only when everybody had finished"
