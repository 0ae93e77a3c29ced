"""What the map's caption says of the model: whom it leaves out, and how much features explain."""

import re
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, expect

from salmon.simulate import egg_world
from tests.archives import write_zip
from tests.program import Program, poll

pytestmark = [pytest.mark.browser, pytest.mark.slow]

SPEC = "title: Eggs\nhtml: {max_queries: 0}\nsamplers: {Adaptive: {random_share: 60%}}\nseed: 11\n"


def answer_all(address: str, each: int) -> None:
    """Let four people answer as the eggs are, and a fifth, who answers twice as often,
    choose what stands on the left.
    """
    world, generator = egg_world(30), np.random.default_rng(5)
    with httpx.Client(base_url=address) as client:
        sessions = [
            {"X-Salmon-Session": client.post("arrive", json={"parameters": {"puid": f"p{k}"}}).json()["session"]}
            for k in range(5)
        ]
        for _ in range(each):
            for person, session in [*enumerate(sessions), (4, sessions[4])]:
                query = client.get("query", headers=session).raise_for_status().json()
                asked = np.array([[query["head"], query["left"], query["right"]]])
                winner = int(world.answer(asked, generator)[0, 1]) if person < 4 else query["left"]
                client.post("answers", json={"token": query["token"], "winner": winner}).raise_for_status()


def test_the_map_says_whom_it_leaves_out_and_what_features_explain(
    program: Program, page: Page, tmp_path: Path
) -> None:
    login = program.add_user()
    known = "target,smoothness\n" + "".join(
        f"egg {k},{place}\n" for k, (place,) in enumerate(egg_world(30).coordinates)
    )
    files = [("targets.csv", "".join(f"egg {k}\n" for k in range(30)).encode()), ("features.csv", known.encode())]
    archive = write_zip(tmp_path / "eggs.zip", files)
    with httpx.Client(base_url=program.address, auth=login) as client:
        client.post(
            "/api/experiments",
            files={"spec": ("eggs.yaml", SPEC.encode()), "targets": ("targets.zip", archive.read_bytes())},
            data={"state": "open", "name": "eggs"},
        ).raise_for_status()
    answer_all(f"{program.address}/e/eggs/", 120)
    with httpx.Client(base_url=f"{program.address}/api/experiments/eggs", auth=login) as client:
        model = partial(client.get, "model", params={"sampler": "Adaptive"})
        poll(lambda: model().json().get("numbers", {}).get("reported_of") == 720, "the last report", seconds=60)
    page.goto(f"{program.address}/console/experiments/eggs/map")
    page.get_by_label("Name").fill(login[0])
    page.get_by_label("Password").fill(login[1])
    page.get_by_role("button", name="Log in").click()
    page.wait_for_url(lambda url: "login" not in url)
    page.goto(f"{program.address}/console/experiments/eggs/map")
    caption = page.locator("#caption")
    expect(caption).to_contain_text(re.compile(r"features explain [0-9]+ %"), timeout=30_000)
    expect(caption).to_contain_text("without 1 participant who answered by chance")
    caption.get_by_role("link", name="1 participant").click()
    expect(page).to_have_url(re.compile("/console/experiments/eggs/participants$"))
