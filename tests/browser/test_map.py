"""The map of imported experiments with 12, 60 and 500 pictures: nothing covers anything
else, by mouse and by keyboard.
"""

import colorsys
import io
import itertools
import re
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import numpy as np
import pytest
from PIL import Image, ImageDraw
from playwright.sync_api import Page, expect

from backend.plan import EVALUATION_SECONDS
from tests.archives import write_zip
from tests.browser.participant import assert_accessible, take_picture
from tests.program import Program, poll

pytestmark = [pytest.mark.browser, pytest.mark.slow]

PASSWORD = "a long password"
SCREENS = {"phone": (360, 640), "desktop": (1280, 800), "hd": (1920, 1080), "4k": (3840, 2160)}
WANTED = {12: 12, 60: 60, 500: 100}


def picture(index: int) -> bytes:
    """A small drawing that differs from the others in colour and shape."""
    hue = 0.618 * index % 1
    size = [(96, 96), (96, 72), (72, 96)][index % 3]
    image = Image.new("RGB", size, tuple(int(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.18, 0.97)))
    draw = ImageDraw.Draw(image)
    ink = tuple(int(255 * part) for part in colorsys.hsv_to_rgb(hue, 0.75, 0.7))
    box = (0.2 * size[0], 0.2 * size[1], 0.8 * size[0], 0.8 * size[1])
    if index % 2:
        draw.ellipse(box, fill=ink)
    else:
        draw.regular_polygon((size[0] / 2, size[1] / 2, 0.36 * min(size)), 3 + index % 5, fill=ink)
    stream = io.BytesIO()
    image.save(stream, "png")
    return stream.getvalue()


def import_experiment(program: Program, folder: Path, n: int, login: tuple[str, str]) -> str:
    """Import answers about n pictures whose experiment has a passive sampler alone, and wait for their embedding."""
    generator = np.random.default_rng(n)
    world = np.concatenate(
        [generator.normal(size=(n - n // 3, 2)), [1.6, 1.2] + 0.25 * generator.normal(size=(n // 3, 2))]
    )
    rows = np.array([generator.choice(n, 3, replace=False) for _ in range(25 * n)])
    d2 = ((world[rows[:, 1:]] - world[rows[:, :1]]) ** 2).sum(axis=2)
    winners = np.where(d2[:, 0] < d2[:, 1], rows[:, 1], rows[:, 2])
    lines = [
        "head,left,right,winner",
        *(",".join(map(str, (*row, won))) for row, won in zip(rows, winners, strict=True)),
    ]
    archive = write_zip(folder / f"{n}.zip", [(f"bird_{index:03d}.png", picture(index)) for index in range(n)])
    spec = "title: Birds\nsamplers: {Random: {}}\nhtml: {max_queries: 20}\n"
    with httpx.Client(base_url=program.address, auth=login, timeout=120) as client:
        reply = client.post(
            "/api/experiments/import",
            files={
                "bundle": ("answers.csv", "\n".join(lines).encode()),
                "config": ("config.yaml", spec.encode()),
                "targets": ("targets.zip", archive.read_bytes()),
            },
            data={"name": f"birds{n}"},
        )
        assert reply.is_success, reply.text
        slug = reply.json()["slug"]
        assert client.get(f"/api/experiments/{slug}").json()["state"] == "paused"
        if n > 12:  # the page itself asks for the small one; two folds are enough for the others
            base = f"/api/experiments/{slug}/requests"
            asked = client.post(base, json={"kind": "fit", "arguments": {"exclude": [], "folds": 2}}).json()
            poll(lambda: client.get(f"{base}/{asked['request']}").json()["state"] == "done", "the fit", seconds=200)
    return slug


class Birds(dict[int, str]):
    """The experiments by their number of pictures, each imported when it is first asked for."""

    def __init__(self, program: Program, folder: Path) -> None:
        self._program, self._folder, self._login = program, folder, program.add_user("olga", PASSWORD)

    def __missing__(self, n: int) -> str:
        self[n] = import_experiment(self._program, self._folder, n, self._login)
        return self[n]


@pytest.fixture(scope="module")
def birds(program: Program, tmp_path_factory: pytest.TempPathFactory) -> Birds:
    return Birds(program, tmp_path_factory.mktemp("birds"))


def open_map(page: Page, program: Program, slug: str) -> None:
    open_tab(page, program, slug)
    wait_for_layout(page)


def open_tab(page: Page, program: Program, slug: str) -> None:
    page.goto(f"{program.address}/console/experiments/{slug}/map")
    if "login" in page.url:
        page.get_by_label("Name").fill("olga")
        page.get_by_label("Password").fill(PASSWORD)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url(lambda url: "login" not in url)
        page.goto(f"{program.address}/console/experiments/{slug}/map")


def wait_for_layout(page: Page) -> None:
    """Wait until the layout is that of what is shown."""
    page.wait_for_selector("#map .map-drawing[data-arranged] .labels text", timeout=60_000)
    # No request of a layout for a while: the last one has been drawn.
    page.wait_for_load_state("networkidle")
    page.wait_for_timeout(300)


#: Boxes on the screen, as the browser draws them: [left, top, right, bottom].
READ = """() => {
  const box = (element) => { const b = element.getBoundingClientRect(); return [b.left, b.top, b.right, b.bottom]; };
  const map = document.querySelector("#map");
  return {
    frame: box(map),
    labels: [...map.querySelectorAll(".labels text")].map(box),
    pictures: [...map.querySelectorAll(".mark:not(.away) .card")].filter((e) => getComputedStyle(e).visibility === "visible").map(box),
    dots: [...map.querySelectorAll(".mark:not(.away) > .dot")].filter((e) => getComputedStyle(e).visibility === "visible").map(box),
  };
}"""


def overlaps(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The area that each of the boxes (n, 4) has in common with each of the others (m, 4)."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.clip(high - low, 0, None).prod(axis=2)


def assert_nothing_is_covered(seen: dict[str, list[list[float]]], n: int, *, labels: int, all_pictures: bool) -> None:
    names, pictures, dots = (np.array(seen[name]).reshape(-1, 4) for name in ("labels", "pictures", "dots"))
    assert len(pictures) + len(dots) == n
    if all_pictures:
        assert len(pictures) == n
    assert len(names) >= labels, len(names)
    left, top, right, bottom = seen["frame"]
    assert (names[:, :2] >= (left - 0.5, top - 0.5)).all()
    assert (names[:, 2:] <= (right + 0.5, bottom + 0.5)).all()
    # A browser's box of a text is up to 2 px higher than its letters: a tenth of a pixel column is none.
    common = overlaps(names, names)
    np.fill_diagonal(common, 0)
    heights = names[:, 3] - names[:, 1]
    assert (common.max(axis=1, initial=0) <= 0.2 * heights * (names[:, 2] - names[:, 0])).all()
    inner = names + np.stack([0 * heights, 0.14 * heights, 0 * heights, -0.14 * heights], axis=1)
    common = overlaps(inner, inner)
    np.fill_diagonal(common, 0)
    assert common.max(initial=0) == 0
    if len(pictures):
        area = (pictures[:, 2:] - pictures[:, :2]).prod(axis=1)
        hidden = overlaps(pictures, pictures)
        np.fill_diagonal(hidden, 0)
        assert ((hidden.sum(axis=1) + overlaps(pictures, inner).sum(axis=1)) / area).max() <= 0.05


@pytest.mark.parametrize("n", WANTED)
def test_no_label_or_picture_covers_another_at_any_size_of_the_window(
    program: Program, birds: dict[int, str], page: Page, n: int
) -> None:
    for screen, (width, height) in SCREENS.items():
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="light")
        open_map(page, program, birds[n])
        seen = page.evaluate(READ)
        assert_nothing_is_covered(seen, n, labels=WANTED[n], all_pictures=n <= 60)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        for scheme in ("light", "dark"):
            page.emulate_media(color_scheme=scheme)
            if screen != "4k" and n == 60:
                assert_accessible(page)
            kind = "jpeg" if width > 1300 else "png"
            take_picture(
                page,
                f"map-{n}-{screen}-{scheme}.{kind}",
                full_page=screen == "phone",
                **({"quality": 60} if kind == "jpeg" else {}),
            )


def test_a_target_is_found_selected_and_zoomed_to_with_the_keyboard_alone(
    program: Program, birds: dict[int, str], page: Page
) -> None:
    open_map(page, program, birds[12])
    expect(page.locator("#caption")).to_contain_text("Fitted to 300 answers on request")
    page.locator("#map .map-drawing").focus()
    mark = page.get_by_role("option", name="bird_000", exact=True)
    before = mark.get_attribute("transform")
    page.keyboard.press("+")
    assert mark.get_attribute("transform") != before
    page.keyboard.press("0")
    wait_for_layout(page)
    page.keyboard.press("Tab")
    first = page.evaluate("document.activeElement.getAttribute('aria-label')")
    assert first == "bird_000"
    expect(page.locator("#point")).to_contain_text("Nearest neighbours")
    moved = set()
    for key in ("ArrowRight", "ArrowLeft", "ArrowUp", "ArrowDown"):
        page.keyboard.press(key)
        moved.add(page.evaluate("document.activeElement.getAttribute('aria-label')"))
    assert len(moved) > 1
    page.keyboard.press("End")
    page.keyboard.press(" ")
    page.keyboard.press("Home")
    page.keyboard.press(" ")
    expect(page.locator("#selected-count")).to_have_text("2 targets selected")
    assert page.locator("#selected").input_value().split("\n") == ["bird_000", "bird_011"]


def place_of(page: Page, name: str) -> tuple[float, float]:
    """Where the middle of a target's mark is in the window."""
    return page.get_by_role("option", name=name, exact=True).evaluate(
        "(mark) => { const at = mark.getCTM(); const map = mark.ownerSVGElement.getBoundingClientRect();"
        " return [map.left + at.e, map.top + at.f]; }"
    )


def test_the_wheel_zooms_at_the_pointer_and_dragging_moves_the_map(
    program: Program, birds: dict[int, str], page: Page
) -> None:
    open_map(page, program, birds[12])
    page.get_by_label("Largest picture").fill("20")  # small pictures stand where their targets are
    wait_for_layout(page)
    places = {name: np.array(place_of(page, name)) for name in (f"bird_{number:03d}" for number in range(12))}
    middle = np.median(list(places.values()), axis=0)
    # One in the middle and another not far from it: both are still in the window when the map has come closer.
    name = min(places, key=lambda each: np.hypot(*(places[each] - middle)))
    x, y = places.pop(name)
    neighbour = min(places, key=lambda each: abs(np.hypot(*(places[each] - (x, y))) - 120))
    other = places[neighbour]
    page.mouse.move(x, y)
    for _ in range(3):
        page.mouse.wheel(0, -100)
    zoomed, other_zoomed = place_of(page, name), place_of(page, neighbour)
    assert np.hypot(*np.subtract(zoomed, (x, y))) < 40  # what is under the pointer stays there
    apart, apart_zoomed = (np.hypot(*np.subtract(a, b)) for a, b in ((other, (x, y)), (other_zoomed, zoomed)))
    assert apart_zoomed == pytest.approx(1.25**3 * apart, rel=0.35)  # pictures may stand a little beside their targets
    wait_for_layout(page)
    before = np.array(place_of(page, name))
    box = page.locator("#map").bounding_box()
    page.mouse.move(box["x"] + 15, box["y"] + 15)
    page.mouse.down()
    page.mouse.move(box["x"] + 75, box["y"] + 45, steps=4)
    after = np.array(place_of(page, name))
    page.mouse.up()
    assert after - before == pytest.approx(np.array([60, 30]), abs=1)


def test_two_fingers_zoom_and_one_moves_the_map(
    program: Program, birds: dict[int, str], new_page: Callable[..., Page]
) -> None:
    page = new_page(viewport={"width": 360, "height": 640}, has_touch=True)
    open_map(page, program, birds[12])
    page.locator("#map").scroll_into_view_if_needed()
    box = page.locator("#map").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    touches = page.context.new_cdp_session(page)

    def touch(kind: str, *points: tuple[float, float]) -> None:
        fingers = [{"x": x + dx, "y": y + dy, "id": number} for number, (dx, dy) in enumerate(points)]
        touches.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": fingers})
        # The browser delivers movements once a frame.
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def scale() -> float:
        first, second = (np.array(place_of(page, f"bird_{number:03d}")) for number in (0, 11))
        return float(np.hypot(*(first - second)))

    def grid() -> np.ndarray:
        """Where the vertical lines of the grid are: unlike thumbnails, they are never moved apart."""
        lines = page.locator(".grid line").evaluate_all(
            "(lines) => lines.map((line) => [line.x1, line.x2].map((end) => end.baseVal.value))"
        )
        return np.array(sorted(first for first, second in lines if first == second))

    before = scale()
    touch("touchStart", (-30, 0), (30, 0))
    for apart in (40, 60, 80):
        touch("touchMove", (-apart, 0), (apart, 0))
    zoomed = scale()
    touch("touchEnd")
    assert zoomed > 1.7 * before
    wait_for_layout(page)
    start = grid()
    touch("touchStart", (0, 0))
    for along in (10, 25, 40):
        touch("touchMove", (along, 0))
    moved = grid()
    touch("touchEnd")
    spacing = start[1] - start[0]
    assert spacing > 45  # so that a movement of 40 pixels is not one to the next line
    assert (moved[0] - start[0]) % spacing == pytest.approx(40, abs=1)
    assert page.evaluate("scrollX") == 0


def test_without_answers_a_sentence_stands_in_the_place_of_the_map(program: Program, page: Page) -> None:
    program.launch_text("nobody-yet", "targets: [oak, elm, ash, yew]\n")
    open_tab(page, program, "nobody-yet")
    expect(page.locator("#caption")).to_contain_text("There are no answers yet.")
    expect(page.locator("#caption")).to_be_in_viewport()
    expect(page.locator(".mark").first).to_be_hidden()


def test_names_can_be_left_out_and_never_gather_in_a_corner(
    program: Program, birds: dict[int, str], page: Page
) -> None:
    open_map(page, program, birds[60])
    before = page.evaluate(READ)
    page.get_by_label("Names").uncheck()
    expect(page.locator(".labels text")).to_have_count(0)
    page.wait_for_load_state("networkidle")
    page.get_by_label("Names").check()
    wait_for_layout(page)
    after = page.evaluate(READ)
    assert np.allclose(before["pictures"], after["pictures"], atol=1)
    assert np.ptp(np.array(after["pictures"])[:, 0]) > 300


def test_a_sampler_that_is_added_while_answers_are_there_shows_them_at_once(
    program: Program, birds: dict[int, str], page: Page
) -> None:
    slug = birds[12]
    login = ("olga", PASSWORD)
    with httpx.Client(base_url=program.address, auth=login, timeout=60) as client:
        address = f"/api/experiments/{slug}"
        revision = client.get(address).json()["revision"]
        spec = "title: Birds\nsamplers: {Random: {}, Adaptive: {d: 2}}\nhtml: {max_queries: 20}\n"
        changed = client.put(
            f"{address}/spec", files={"spec": ("x.yaml", spec.encode())}, data={"revision": str(revision)}
        )
        assert changed.is_success, changed.text
        assert client.get(address).json()["state"] == "paused"
    open_map(page, program, slug)
    expect(page.locator("#sampler option")).to_have_text(["Adaptive", "All answers"])
    expect(page.locator("#caption")).to_contain_text("300 answers")
    expect(page.locator("#map .labels text")).to_have_count(12)
    assert "first answers" not in page.locator("main").inner_text()


WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "koi", "lynx"]
FLIPPERS = ("flip0", "flip1", "flip2")
LAPSE = 0.06


def answer(program: Program, name: str, world: np.ndarray, count: int) -> None:
    """Answer about a known world: careful people err now and then, others flip a coin."""
    generator = np.random.default_rng(sum(map(ord, name)))
    lapse = 0.5 if name in FLIPPERS else LAPSE
    with httpx.Client(base_url=f"{program.address}/e/words/", timeout=60) as client:
        session = client.post("arrive", json={"parameters": {"puid": name}}).raise_for_status().json()["session"]
        client.headers["X-Salmon-Session"] = session
        for _ in range(count):
            query = client.get("query").raise_for_status().json()
            sides = [query["left"], query["right"]]
            distances = ((world[sides] - world[query["head"]]) ** 2).sum(axis=1)
            nearer = int(distances[1] < distances[0])
            winner = sides[nearer if generator.random() > lapse else 1 - nearer]
            reply = {"token": query["token"], "winner": winner, "rt_ms": 900.0, "query_wait_ms": 8.0, "input": "key"}
            client.post("answers", json=reply).raise_for_status()


@pytest.fixture(scope="module")
def words(program: Program, birds: dict[int, str]) -> np.ndarray:
    """The true places of twelve words about which ten people have answered, three of them by flipping coins."""
    world = np.random.default_rng(5).normal(size=(12, 2))
    spec = f"targets: [{', '.join(WORDS)}]\nsamplers: {{Adaptive: {{d: 2}}}}\nhtml: {{max_queries: 60}}\n"
    login = ("olga", PASSWORD)
    with httpx.Client(base_url=program.address, auth=login, timeout=60) as client:
        form = {"files": {"spec": ("words.yaml", spec.encode())}, "data": {"name": "words", "state": "open"}}
        assert client.post("/api/experiments", **form).is_success
        people = [*(f"careful{k}" for k in range(7)), *FLIPPERS]
        with ThreadPoolExecutor(4) as pool:
            for done in [pool.submit(answer, program, name, world, 60) for name in people]:
                done.result()
        for person in client.get("/api/experiments/words/participants", params={"wait": "yes"}).json()["participants"]:
            keep = "exclude" if person["puid"] in FLIPPERS else "keep"
            decided = client.put(
                f"/api/experiments/words/participants/{person['participant']}", json={"keep": keep, "note": "known"}
            )
            assert decided.is_success, decided.text

        def maps() -> int:
            return len(client.get("/api/experiments/words/history", params={"sampler": "Adaptive"}).json()["maps"])

        def settled() -> bool:
            """Whether no evaluation has changed the accuracy for longer than two of them are apart."""
            reply = client.get("/api/experiments/words/model", params={"sampler": "Adaptive"})
            accuracy = reply.json().get("numbers", {}).get("accuracy")
            if accuracy != seen[-1][0]:
                seen.append((accuracy, time.monotonic()))
            return accuracy is not None and time.monotonic() - seen[-1][1] > 1.5 * EVALUATION_SECONDS

        seen: list[tuple[float | None, float]] = [(None, 0.0)]
        poll(lambda: maps() >= 2, "two generations with maps", seconds=60)
        poll(settled, "the evaluation of all answers", seconds=120)
    return world


def true_accuracy(coordinates: np.ndarray, world: np.ndarray) -> float:
    """The share of careful answers to random queries that an embedding predicts."""
    generator = np.random.default_rng(0)
    rows = np.array([generator.choice(12, 3, replace=False) for _ in range(4000)])
    distances = [((places[rows[:, 1:]] - places[rows[:, :1]]) ** 2).sum(axis=2) for places in (coordinates, world)]
    first, second = (d2[:, 0] < d2[:, 1] for d2 in distances)
    agree = float((first == second).mean())
    return (1 - LAPSE) * agree + LAPSE * (1 - agree)


def percentages(text: str) -> list[float]:
    return [float(value) / 100 for value in re.findall(r"(-?\d+\.\d) %", text)]


def test_compare_shows_the_true_accuracy_with_and_without_the_excluded(
    program: Program, words: np.ndarray, page: Page
) -> None:
    open_map(page, program, "words")
    page.goto(f"{program.address}/console/experiments/words/participants")
    page.get_by_role("button", name="Compare").click()
    rows = page.locator("#comparison tbody tr")
    expect(rows).to_have_count(3, timeout=120_000)
    base, everybody, careful = (percentages(text) for text in rows.all_inner_texts())
    assert "as on the overview" in rows.nth(0).inner_text()
    assert rows.nth(2).inner_text().startswith("without the 3 excluded")
    with httpx.Client(base_url=program.address, auth=("olga", PASSWORD), timeout=60) as client:
        requests = client.get("/api/experiments/words/requests").json()
        request = next(one["request"] for one in requests if one["kind"] == "fit" and one["arguments"]["exclude"])
        result = client.get(f"/api/experiments/words/requests/{request}").json()["result"]
        model = client.get("/api/experiments/words/model", params={"request": request}).json()
    for shown, kept in ((base, "everybody"), (everybody, "with"), (careful, "without")):
        held = result["held_out"][kept]
        assert shown == pytest.approx([held["accuracy"], held["low"], held["high"]], abs=0.0006)
    truth = true_accuracy(np.array(model["coordinates"]), words)
    accuracy, low, high = careful
    assert low <= accuracy <= high
    assert low - 0.03 <= truth <= high + 0.03, (careful, truth)
    sentence = page.locator("#comparison p").first.inner_text()
    assert "NaN" not in page.locator("#comparison").inner_text()
    change = result["held_out"]["change"]["accuracy"]
    assert f"{100 * abs(change):.1f}" in sentence or "no clear" in sentence.lower(), sentence


PLACES = """(id) => Object.fromEntries([...document.querySelectorAll(`#${id} .mark`)].map((mark) => {
  const at = mark.getCTM();
  return [Number(mark.dataset.index), [at.e, at.f]];
}))"""


def test_generations_side_by_side_are_aligned_and_show_their_own_accuracy(
    program: Program, words: np.ndarray, page: Page
) -> None:
    open_map(page, program, "words")
    offered = page.locator("#beside option").all_inner_texts()
    page.get_by_label("Compare with").select_option(label=next(text for text in offered if "generation" in text))
    expect(page.locator("#beside-caption")).to_contain_text("Procrustes")
    page.wait_for_selector("#map-beside .map-drawing[data-arranged]")
    wait_for_layout(page)
    here, there = (
        np.array([places[str(index)] for index in range(12)])
        for places in (page.evaluate(PLACES, name) for name in ("map", "map-beside"))
    )
    # Words are dots, which stand exactly at their targets. No move, turn, mirroring or scaling brings them nearer.
    a, b = here - here.mean(axis=0), there - there.mean(axis=0)
    u, s, vt = np.linalg.svd(b.T @ a)
    best = ((a - s.sum() / (b**2).sum() * b @ u @ vt) ** 2).sum()
    assert np.hypot(*(here.mean(axis=0) - there.mean(axis=0))) < 1
    assert ((a - b) ** 2).sum() == pytest.approx(best, rel=0.02, abs=4)
    with httpx.Client(base_url=program.address, auth=("olga", PASSWORD), timeout=60) as client:
        numbers = client.get("/api/experiments/words/model", params={"sampler": "Adaptive"}).json()["numbers"]
    wanted = [numbers["accuracy"], numbers["accuracy_low"], numbers["accuracy_high"]]
    assert percentages(page.locator("#caption").inner_text()) == pytest.approx(wanted, abs=0.0006)
    # The share that an earlier map predicted while it grew is no accuracy of that map.
    assert percentages(page.locator("#beside-caption").inner_text()) == []


def test_the_whole_map_is_seen_without_scrolling(program: Program, birds: dict[int, str], page: Page) -> None:
    for width, height in ((1280, 800), (1920, 1080)):
        page.set_viewport_size({"width": width, "height": height})
        open_map(page, program, birds[60])
        box = page.locator("#map").bounding_box()
        assert box is not None
        assert box["y"] < 230
        assert box["y"] + box["height"] <= height


ELLIPSES = """() => [...document.querySelectorAll(".ellipses ellipse")].map((each) => {
  const { left, top, right, bottom } = each.getBoundingClientRect();
  return [left, top, right, bottom];
})"""


def test_uncertainty_is_that_of_the_pointed_and_selected_or_of_all_and_is_never_cut(
    program: Program, words: np.ndarray, page: Page
) -> None:
    open_map(page, program, "words")
    ellipses = page.locator(".ellipses ellipse")
    expect(ellipses).to_have_count(0)
    page.get_by_label("Uncertainty").select_option("of the pointed and selected")
    expect(ellipses).to_have_count(0)
    page.locator(".mark").nth(3).focus()
    expect(ellipses).to_have_count(1)
    page.keyboard.press("Space")
    page.locator(".mark").nth(5).focus()
    expect(ellipses).to_have_count(2)
    page.locator(".mark").nth(5).blur()
    expect(ellipses).to_have_count(1)
    page.get_by_role("button", name="Clear").click()
    expect(ellipses).to_have_count(0)
    page.get_by_label("Uncertainty").select_option("of all targets")
    expect(ellipses).to_have_count(12)
    frame = page.locator("#map").bounding_box()
    assert frame is not None
    boxes = np.array(page.evaluate(ELLIPSES))
    assert (boxes[:, :2] >= (frame["x"] - 1, frame["y"] - 1)).all()
    assert (boxes[:, 2:] <= (frame["x"] + frame["width"] + 1, frame["y"] + frame["height"] + 1)).all()


def test_a_lasso_selects_what_it_surrounds(program: Program, birds: dict[int, str], page: Page) -> None:
    open_map(page, program, birds[60])
    page.get_by_role("button", name="Lasso").click()
    box = page.locator("#map").bounding_box()
    middle = box["x"] + box["width"] / 2
    corners = [
        (box["x"] + 12, box["y"] + 12),
        (middle, box["y"] + 12),
        (middle, box["y"] + box["height"] - 12),
        (box["x"] + 12, box["y"] + box["height"] - 12),
    ]
    page.mouse.move(*corners[0])
    page.mouse.down()
    for corner in [*corners[1:], corners[0]]:
        page.mouse.move(*corner, steps=5)
    page.mouse.up()
    seen = page.evaluate(READ)
    inside = sum((left + right) / 2 < middle for left, _, right, _ in seen["pictures"])
    assert 0 < inside < 60
    expect(page.locator("#selected-count")).to_have_text(f"{inside} targets selected")
    assert len(page.locator("#selected").input_value().split("\n")) == inside


def test_groups_of_a_table_have_shapes_and_are_printed_at_true_scale(
    program: Program, birds: dict[int, str], page: Page, tmp_path: Path
) -> None:
    open_map(page, program, birds[60])
    table = tmp_path / "groups.csv"
    kinds = itertools.cycle(["songbird", "wader", "raptor", "gull"])
    table.write_text(
        "stimulus,kind,weight\n"
        + "".join(f"bird_{k:03d}.png,{kind},{k}\n" for k, kind in zip(range(60), kinds, strict=False))
    )
    page.locator("#table").set_input_files(table)
    expect(page.locator("#table-outcome")).to_contain_text("60 rows")
    expect(page.locator("#legend li")).to_have_count(4)
    shapes = page.locator("#legend path").evaluate_all("paths => paths.map((path) => path.getAttribute('d'))")
    assert len(set(shapes)) == 4
    assert_accessible(page)
    page.locator("#legend button").first.click()
    expect(page.locator("#selected-count")).to_have_text("15 targets selected")
    for kind, start in (("SVG", b"<?xml"), ("PDF", b"%PDF")):
        with page.expect_download(timeout=60_000) as saved:
            page.get_by_role("button", name=kind, exact=True).click()
        content = Path(saved.value.path()).read_bytes()
        assert content.startswith(start)
        if kind == "SVG":
            assert b'width="240.94' in content  # 85 mm in points
            assert content.count(b"data:image/png;base64") == 60
