"""Maps: where everything stands, and the files that are drawn from it."""

import io
import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from PIL import Image

from salmon import OrdinalEmbedding
from salmon.errors import SalmonError
from salmon.export.map_drawing import MapGroups, display_names, draw_map
from salmon.export.map_layout import LayoutSizes, MapLayout, arrange

FRAMES = {
    "phone": ((326.0, 438.0), 12.0, LayoutSizes(13, 72, 4, 4)),
    "desktop": ((1000.0, 500.0), 12.0, LayoutSizes(20, 72, 4, 4)),
    "4k": ((3550.0, 1860.0), 16.0, LayoutSizes(20, 72, 4, 4)),
}


def world(kind: str, n: int, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    match kind:
        case "random":
            return generator.normal(size=(n, 2))
        case "clustered":
            return generator.normal(size=(5, 2))[np.arange(n) % 5] + 0.05 * generator.normal(size=(n, 2))
        case _:
            return np.column_stack([generator.uniform(-1, 1, n), 0.02 * generator.normal(size=n)])


def on_frame(places: np.ndarray, frame: tuple[float, float]) -> np.ndarray:
    low, high = places.min(axis=0), places.max(axis=0)
    return (places - (low + high) / 2) * ((np.array(frame) - 60) / (high - low)).min() + np.array(frame) / 2


def overlaps(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """The area that each of the boxes [x0, y0, x1, y1] has in common with each of the others."""
    low = np.maximum(boxes[:, None, :2], others[None, :, :2])
    high = np.minimum(boxes[:, None, 2:], others[None, :, 2:])
    return np.clip(high - low, 0, None).prod(axis=2)


def assert_clean(layout: MapLayout, frame: tuple[float, float], shapes: np.ndarray, label_sizes: np.ndarray) -> None:
    """Nothing covers anything else, and nothing is cut off."""
    corners = layout.corners[layout.labelled]
    labels = np.hstack([corners, corners + label_sizes[layout.labelled]])
    half = layout.side * shapes[layout.pictures] / 2
    pictures = np.hstack([layout.centres[layout.pictures] - half, layout.centres[layout.pictures] + half])
    dots = layout.centres[layout.inside & ~layout.pictures]
    dots = np.hstack([dots - layout.dot, dots + layout.dot])
    for boxes in (labels, pictures):
        assert (boxes[:, :2] >= -1e-6).all()
        assert (boxes[:, 2:] <= np.array(frame) + 1e-6).all()
        common = overlaps(boxes, boxes)
        np.fill_diagonal(common, 0)
        assert common.max(initial=0) < 1e-6
    assert overlaps(labels, pictures).max(initial=0) < 1e-6
    assert overlaps(labels, dots).max(initial=0) < 1e-6


def sized(n: int, size: float) -> tuple[np.ndarray, np.ndarray]:
    """Shapes of pictures and sizes of labels like those of eight letters, some longer."""
    generator = np.random.default_rng(1)
    shapes = np.column_stack([np.ones(n), generator.uniform(0.6, 1, n)])
    return shapes, np.column_stack([0.6 * size * generator.integers(5, 11, n), np.full(n, 1.2 * size)])


@pytest.mark.parametrize("screen", FRAMES)
@pytest.mark.parametrize("kind", ["random", "clustered", "line"])
@pytest.mark.parametrize("n", [1, 2, 12, 60, pytest.param(500, marks=pytest.mark.slow)])
def test_nothing_on_a_map_covers_anything_else(n: int, kind: str, screen: str) -> None:
    frame, size, sizes = FRAMES[screen]
    shapes, labels = sized(n, size)
    points = on_frame(world(kind, n), frame) if n > 1 else np.array([[100.0, 100.0]])
    found = arrange(points, frame, shapes, labels, sizes)
    assert_clean(found, frame, shapes, found.font * labels)
    if n <= 60:
        assert found.pictures.all()
        assert found.labelled.all()
    else:
        assert found.labelled.sum() >= 100
    if n > 60:
        return
    again = arrange(points, frame, shapes, labels, sizes)
    assert all(
        np.array_equal(a, b, equal_nan=True) for a, b in zip(vars(found).values(), vars(again).values(), strict=True)
    )


@pytest.mark.slow
@pytest.mark.parametrize("screen", FRAMES)
@pytest.mark.parametrize("kind", ["random", "clustered", "line"])
def test_a_thousand_targets_are_laid_out_with_a_hundred_labels(kind: str, screen: str) -> None:
    frame, size, sizes = FRAMES[screen]
    shapes, labels = sized(1000, size)
    found = arrange(on_frame(world(kind, 1000), frame), frame, shapes, labels, sizes)
    assert_clean(found, frame, shapes, found.font * labels)
    assert found.inside.all()
    assert found.labelled.sum() >= 100


@pytest.mark.parametrize(("n", "screen", "most"), [(60, "desktop", 12), (60, "4k", 0), (500, "desktop", 90)])
@pytest.mark.parametrize("kind", ["random", "clustered", "line"])
def test_lines_pass_below_few_names(kind: str, n: int, screen: str, most: int) -> None:
    frame, size, sizes = FRAMES[screen]
    shapes, labels = sized(n, size)
    found = arrange(on_frame(world(kind, n), frame), frame, shapes, labels, sizes)
    below = 0
    for index in np.flatnonzero(np.isfinite(found.leaders[:, 0])):
        start, end = found.leaders[index].reshape(2, 2)
        points = start + np.linspace(0, 1, 500)[:, None] * (end - start)
        corners, ends = found.corners, found.corners + found.font * labels
        inside = ((points[:, None] > corners) & (points[:, None] < ends)).all(axis=2).any(axis=0)
        inside[index] = False
        below += int(inside.sum())
    assert below <= most


def test_moved_pictures_stay_near_their_targets() -> None:
    frame, size, sizes = FRAMES["desktop"]
    shapes, labels = sized(60, size)
    points = on_frame(world("clustered", 60), frame)
    found = arrange(points, frame, shapes, labels, sizes)
    assert np.hypot(*(found.centres - points).T).max() <= 0.16 * min(frame) + 40


def test_targets_outside_the_frame_are_not_shown() -> None:
    points = np.array([[50.0, 50.0], [-20.0, 50.0], [150.0, 500.0]])
    found = arrange(points, (200, 100), np.ones((3, 2)), np.full((3, 2), 10.0), FRAMES["desktop"][2])
    assert found.inside.tolist() == [True, False, False]
    assert found.labelled.tolist() == found.pictures.tolist() == [True, False, False]


def test_targets_at_one_place_are_pushed_apart() -> None:
    shapes, labels = sized(8, 12)
    found = arrange(np.full((8, 2), 250.0), (500, 500), shapes, labels, FRAMES["desktop"][2])
    assert_clean(found, (500, 500), shapes, found.font * labels)
    assert found.pictures.all()


def picture(index: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (60, [40, 60, 50][index % 3]), (index * 7 % 255, index * 13 % 255, 120)).save(stream, "png")
    return stream.getvalue()


def drawn_boxes(svg: bytes) -> tuple[tuple[float, float, float], np.ndarray, np.ndarray]:
    """Width, height and millimetres of a drawing, and the boxes [x0, y0, x1, y1] of its pictures and of its texts.

    A text is the group of its outlines: its box is taken from their coordinates.
    """
    root = ET.fromstring(svg)
    width, height = (float(value) for value in root.get("viewBox").split()[2:])
    outlines = {
        f"#{path.get('id')}": np.array(re.findall(r"(-?[\d.]+) (-?[\d.]+)", path.get("d", "")), dtype=float)
        for path in root.iter("{http://www.w3.org/2000/svg}path")
        if path.get("id") and path.get("d")
    }
    texts = []
    for group in root.iter("{http://www.w3.org/2000/svg}g"):
        if not group.get("id", "").startswith("text_"):
            continue
        inner = next(
            item for item in group.iter("{http://www.w3.org/2000/svg}g") if "scale(" in (item.get("transform") or "")
        )
        x, y = map(float, re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", inner.get("transform")).groups())
        scale = float(re.search(r"scale\(([-\d.]+)", inner.get("transform"))[1])
        letters = []
        for use in inner.iter("{http://www.w3.org/2000/svg}use"):
            outline = outlines[use.get("{http://www.w3.org/1999/xlink}href")]
            shift = re.search(r"translate\(([-\d.]+)(?: ([-\d.]+))?\)", use.get("transform") or "")
            place = (float(shift[1]), float(shift[2] or 0)) if shift else (0.0, 0.0)
            inside = re.search(r"scale\(([-\d.]+)", use.get("transform") or "")
            if len(outline):
                letters.append(outline * (float(inside[1]) if inside else 0.015625) + place)
        points = np.concatenate(letters)
        texts.append(
            [
                x + scale * points[:, 0].min(),
                y - scale * points[:, 1].max(),
                x + scale * points[:, 0].max(),
                y - scale * points[:, 1].min(),
            ]
        )
    images = []
    for image in root.iter("{http://www.w3.org/2000/svg}image"):
        x, y, wide, high = (float(image.get(name, 0)) for name in ("x", "y", "width", "height"))
        matrix = re.search(r"translate\(([-\d.]+) ([-\d.]+)\)", image.get("transform") or "")
        images.append([x, y, wide, high, *(map(float, matrix.groups()) if matrix else (0.0, 0.0))])
    return (width, height, float(root.get("width").removesuffix("pt")) * 25.4 / 72), np.array(images), np.array(texts)


@pytest.mark.slow
@pytest.mark.parametrize("width_mm", [85.0, 174.0])
@pytest.mark.parametrize("kind", ["random", "clustered", "line"])
@pytest.mark.parametrize("n", [12, 60, 500])
def test_a_printed_map_has_true_scale_and_no_label_over_another_or_cut_off(n: int, kind: str, width_mm: float) -> None:
    names = [f"bird_{index:03d}.png" for index in range(n)]
    drawn = draw_map(world(kind, n), names, pictures={k: picture(k) for k in range(n)}, width_mm=width_mm)
    (panel,) = drawn.panels
    shapes = np.array([[1.0, [40, 60, 50][k % 3] / 60] for k in range(n)])
    assert_clean(panel.layout, panel.frame, shapes, panel.label_sizes)
    svg = drawn.content("svg")
    (width, height, mm), images, texts = drawn_boxes(svg)
    assert mm == pytest.approx(width_mm, abs=0.01)
    assert len(texts) == panel.layout.labelled.sum() >= (n if n <= 60 else 100)
    assert len(images) == panel.layout.pictures.sum() >= (n if n <= 60 else 0)
    assert (texts[:, :2] >= 0).all()
    assert (texts[:, 2:] <= (width, height)).all()
    common = overlaps(texts, texts)
    np.fill_diagonal(common, 0)
    assert common.max() == 0
    pdf = drawn.content("pdf")
    assert pdf.count(b"/FontFile2") >= 1
    box = re.search(rb"/MediaBox\s*\[\s*0 0 ([\d.]+) ", pdf)
    assert float(box[1]) * 25.4 / 72 == pytest.approx(width_mm, abs=0.01)


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_a_map_of_any_dimension_is_drawn_and_the_same_input_gives_the_same_bytes(d: int) -> None:
    coordinates = np.random.default_rng(0).normal(size=(12, d))
    names = ("a $1 <b> & c", "x" * 60, *(f"name {i}" for i in range(10)))
    covariance = np.tile(0.1 * np.eye(d), (12, 1, 1))
    first = draw_map(coordinates, names, covariance=covariance, title="A map")
    assert len(first.panels) == {1: 1, 2: 1, 3: 3, 5: 6}[d]
    assert all(panel.layout.labelled.all() for panel in first.panels)
    assert "x" * 27 + "…" in first.names
    assert first.content("png").startswith(b"\x89PNG")
    for kind in ("svg", "pdf", "png"):
        again = draw_map(coordinates, names, covariance=covariance, title="A map")
        assert again.content(kind) == first.content(kind)


def test_a_unit_is_as_long_upwards_as_across() -> None:
    coordinates = np.array([[0.0, 0.0], [10.0, 0.0], [5.0, 1.0], [0.0, 1.0]])
    (panel,) = draw_map(coordinates, ("p", "q", "r", "s")).panels
    places = panel.layout.centres
    assert (places[1, 0] - places[0, 0]) / 10 == pytest.approx(places[0, 1] - places[3, 1], rel=1e-6)


def test_endings_of_files_are_left_off_unless_two_names_would_be_the_same() -> None:
    assert display_names(["owl.png", "a.b", "v1.2", "tern.SVG"]) == ("owl", "a.b", "v1.2", "tern")
    assert display_names(["owl.png", "owl.jpg", "tern.png"]) == ("owl.png", "owl.jpg", "tern")


def test_groups_are_drawn_with_a_legend_in_shapes() -> None:
    groups = MapGroups((0, 1, 2, -1), ("songbirds", "waders", "gulls"))
    with_groups = draw_map(np.eye(4)[:, :2], "abcd", groups=groups)
    without = draw_map(np.eye(4)[:, :2], "abcd")
    assert len(drawn_boxes(with_groups.content("svg"))[2]) == 7
    assert with_groups.figure.get_size_inches()[1] > without.figure.get_size_inches()[1]


def test_pictures_of_every_kind_are_drawn_and_damaged_ones_become_dots() -> None:
    svg = b'<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><circle cx="20" cy="10" r="9"/></svg>'
    drawn = draw_map(np.eye(3)[:, :2], "abc", pictures={0: svg, 1: picture(0), 2: b"no picture"})
    assert drawn.panels[0].layout.pictures.tolist() == [True, True, False]


def test_an_estimator_plots_its_embedding(tmp_path) -> None:
    generator = np.random.default_rng(0)
    rows = np.array([generator.choice(8, 3, replace=False) for _ in range(200)])
    model = OrdinalEmbedding(random_state=0).fit(rows)
    drawn = model.plot([f"n{k}" for k in range(8)], groups=["x", "y"] * 4, uncertainty=True)
    assert drawn.panels[0].layout.labelled.all()
    drawn.save(tmp_path / "map.pdf")
    assert (tmp_path / "map.pdf").read_bytes().startswith(b"%PDF")
    with pytest.raises(SalmonError, match=r"\.svg, \.pdf or \.png"):
        drawn.save(tmp_path / "map.docx")
    with pytest.raises(SalmonError, match="names has 2 entries"):
        model.plot(["a", "b"])
