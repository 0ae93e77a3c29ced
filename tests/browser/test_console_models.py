"""Parts of the console that need no server: tables and the geometry of the map."""

import pytest
from playwright.sync_api import Page, expect

from tests.browser.participant import download
from tests.program import Program

pytestmark = pytest.mark.browser

TABLE = """async () => {
  const { Table } = await import("/static/console/table.js");
  const columns = [
    { name: "name", label: "Name", value: (row) => row.name },
    { name: "size", label: "Size", number: true, value: (row) => row.size },
  ];
  const table = new Table(columns, { name: "things", label: "Things", key: (row) => row.name });
  document.body.append(table.element);
  table.show([...Array(1000).keys()].map((k) => ({ name: `thing ${k}`, size: k % 7 ? k : null })));
}"""

MAP = """async () => {
  const { axisPairs, ellipse, fitView, isInside, project, readGroups, toScreen, zoomView } = await import("/static/console/map_model.js");
  const places = project([[0, 0], [2, 1], [4, -1]], [0, 1]);
  const view = fitView(places, 400, 300, 40);
  const inside = places.map((place) => toScreen(place, view, 400, 300));
  const closer = zoomView(view, 2, inside[1], 400, 300);
  return {
    inside,
    kept: toScreen(places[1], closer, 400, 300),
    round: ellipse([[4, 0], [0, 4]], [0, 1]),
    tilted: ellipse([[2, 1], [1, 2]], [0, 1]),
    line: ellipse([[1]], [0, 1]),
    pairs: axisPairs(3),
    surrounded: [[1, 1], [3, 1]].map((point) => isInside(point, [[0, 0], [2, 0], [2, 2], [0, 2]])),
    groups: readGroups('file;kind\\n"owl.png";"a; b"\\nTern;c\\nnobody;c\\n', [{ index: 0, name: "owl", file: "owl.png" }, { index: 1, name: "tern" }]).of(1),
  };
}"""


HEAT_MAP = """async () => {
  const [{ Figure }, { answersPerTarget }] = await Promise.all(["figure", "figures"].map((name) => import(`/static/console/${name}.js`)));
  const figure = new Figure(answersPerTarget);
  document.body.append(figure.element);
  figure.show({ targets: 3, names: ["ant", "bee, tired", "12"], targets_asked: { head: [1, 2, 3], foot: [4, 4, 4], won: [0, 0, 6] } });
  return figure.csv();
}"""


def test_the_heat_map_of_answers_names_targets_and_has_a_scale(program: Program, page: Page) -> None:
    page.goto(f"{program.address}/console/login")
    table = page.evaluate(HEAT_MAP)
    assert table.split("\r\n")[1:3] == ["0,ant,1,4,0", '1,"bee, tired",2,4,0']
    texts = page.locator("figure svg text")
    expect(texts.filter(has_text="no answers")).to_have_count(1)
    expect(texts.filter(has_text="twice the mean or more")).to_have_count(1)
    assert {"ant", "bee, tired", "12", "head", "foot", "winner"} <= set(texts.all_text_contents())
    assert not {"0", "1", "2"} & set(texts.all_text_contents())


SHORT_NAMES = """async () => {
  const { shortNames } = await import("/static/console/dom.js");
  return [
    shortNames(["CFD-BM-001-neutral", "CFD-BM-002-neutral", "CFD-BM-017-happy"]),
    shortNames(["ant", "bee, tired", "12"]),
    shortNames(["a very long name that ends in one", "a very long name that ends in two"]),
    shortNames(["only one with a long long name"]),
    shortNames(["bird_1", "bird_"]),
  ];
}"""


def test_names_lose_their_common_beginning_and_are_cut_in_the_middle(program: Program, page: Page) -> None:
    page.goto(f"{program.address}/console/login")
    assert page.evaluate(SHORT_NAMES) == [
        ["001-neutral", "002-neutral", "017-happy"],
        ["ant", "bee, tired", "12"],
        ["one", "two"],
        ["only o…g name"],
        ["bird_1", "bird_"],
    ]


BINS = """async () => {
  const [{ Figure }, { timeBetweenTrials }] = await Promise.all(["figure", "figures"].map((name) => import(`/static/console/${name}.js`)));
  const figure = new Figure(timeBetweenTrials);
  document.body.append(figure.element);
  figure.show({ histograms: { wait: [[0.5, 0.6, 3], [0.6, 5, 2], [5, 9, 1], [9, 12, 4], [12, 20, 5]] }, times: { wait: { median: 5, p95: 19 } } });
  return [...document.querySelectorAll("figure svg text")].map((text) => text.textContent);
}"""


def test_times_that_nobody_notices_are_one_bar(program: Program, page: Page) -> None:
    page.goto(f"{program.address}/console/login")
    texts = page.evaluate(BINS)
    assert {"< 9 ms", "9 ms", "12 ms"} <= set(texts)
    assert not {"0 ms", "1 ms", "5 ms"} & set(texts)


def test_a_table_draws_few_rows_at_first_and_sorts_missing_values_last(program: Program, page: Page) -> None:
    page.goto(f"{program.address}/console/login")
    page.evaluate(TABLE)
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(300)
    expect(page.get_by_role("status")).to_have_text("1,000 rows")
    page.get_by_role("button", name="Show more rows (first 300 shown)").click()
    expect(rows).to_have_count(1000)
    page.get_by_role("button", name="Size").click()
    expect(rows.nth(0).locator("td")).to_have_text("1")
    expect(rows.nth(999).locator("td")).to_have_text("")
    page.get_by_role("button", name="Size").click()
    page.get_by_label("Filter things").fill("thing 99")
    expect(rows).to_have_count(19)
    expect(page.get_by_role("status")).to_have_text("19 of 1,000 rows")
    lines = download(page, "CSV").decode().split("\r\n")
    assert (lines[0], len(lines)) == ("name,size", 21)


def test_views_ellipses_and_labels_of_the_map_are_correct(program: Program, page: Page) -> None:
    page.goto(f"{program.address}/console/login")
    found = page.evaluate(MAP)
    assert all(20 <= x <= 380 and 20 <= y <= 280 for x, y in found["inside"])
    (x0, _), (x1, y1), (x2, y2) = found["inside"]
    assert x1 - x0 == pytest.approx(x2 - x1)
    assert y2 - y1 == pytest.approx(x2 - x0 - (x2 - x0) / 2)  # one scale for both axes: two units down, two across
    assert found["kept"] == pytest.approx([x1, y1])
    assert found["round"]["long"] == pytest.approx(2 * 5.991**0.5)
    assert found["tilted"]["long"] / found["tilted"]["short"] == pytest.approx(3**0.5)
    assert found["tilted"]["angle"] == pytest.approx(-45)  # up to the right: the y axis of the screen points down
    assert found["line"] == {"long": pytest.approx(5.991**0.5), "short": 0, "angle": 0}
    assert found["pairs"] == [[0, 1], [0, 2], [1, 2]]
    assert found["surrounded"] == [True, False]
    assert found["groups"] == {"names": ["a; b", "c"], "groups": [0, 1]}
