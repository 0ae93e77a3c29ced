"""Draw the gallery of the manual from recorded answers of simulated people: python -m benchmarks.gallery

    python -m benchmarks.gallery --record   # let them answer again; the answers go to benchmarks/recorded

The worlds are the ones that the targets were made of, so the truth is known: smoothness of the eggs, hue of the
colours, eyes and mouth of the faces, brightness and attack of the tones, speed and height of the balls. People answer
as those who judged the alien eggs did (`RatioSigmoid`). Their answers are recorded, so that the pictures are the same
on every machine.
"""

import argparse
import csv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from salmon import OrdinalEmbedding
from salmon.answer_files import read_bytes
from salmon.estimator import grouped_folds
from salmon.export.curve_drawing import DrawnCurve, draw_curves
from salmon.export.map_drawing import figure_bytes
from salmon.simulate import Judge, World, bayes_accuracy, given_world, stream

REPOSITORY = Path(__file__).parent.parent
RECORDED = REPOSITORY / "benchmarks" / "recorded"
#: The answers of the example `analysis`, with the names of the targets.
ANALYSED = REPOSITORY / "examples" / "analysis" / "responses.csv"
GALLERY = REPOSITORY / "docs" / "gallery"
PAGE = REPOSITORY / "docs" / "gallery.md"
#: Widths of what is drawn, in mm.
MAP_MM, CURVE_MM = 120, 120
#: Parts of the answers at which the curve is measured.
PARTS = (0.1, 0.2, 0.35, 0.5, 0.75, 1.0)
ABOUT = """\
<!-- written by `make gallery` from benchmarks/recorded -->

# Gallery

What the [examples](../examples/README.md) look like with answers. The people are simulated, and their true maps are known: they are those that the targets were
made of. `make gallery` draws everything on this page again from the recorded answers, and `python -m benchmarks.gallery --record` lets them answer again.

*Predicted* is the share of answers that a map predicts which was fitted without them (five folds, which never divide answers about the same three targets); *possible* is what the
truth itself predicts, since people do not always agree with themselves. *Fresh answers* is the share that the map would predict of new answers to all queries, which is known because the truth is.
"""


@dataclass(frozen=True)
class Exhibit:
    """An example with the world that its targets come from, and how many random queries are answered."""

    name: str
    title: str
    world: World
    answers: int
    labels: tuple[str, ...]

    @property
    def recorded(self) -> Path:
        """Where its answers are."""
        return RECORDED / f"{self.name}.csv"


def exhibits() -> tuple[Exhibit, ...]:
    """Return the examples of the gallery."""
    angles = np.arange(12) * 2 * np.pi / 12
    return (
        _exhibit(
            "colors",
            "Colours",
            np.column_stack([np.cos(angles), np.sin(angles)]),
            1200,
            [f"{30 * k}°" for k in range(12)],
        ),
        _exhibit("eggs", "Alien eggs", np.linspace(0, 1, 20)[:, None], 2000, [f"egg-{k:02}.svg" for k in range(20)]),
        _exhibit("faces", "Faces", _grid(4, 4, 1.0), 2400, [f"face-{a}{b}.svg" for a in range(4) for b in range(4)]),
        _exhibit("sounds", "Tones", _grid(4, 3, 0.7), 1500, [f"tone-{a}{b}.wav" for a in range(4) for b in range(3)]),
        _exhibit(
            "videos", "Bouncing balls", _grid(3, 3, 0.8), 900, [f"ball-{a}{b}.webm" for a in range(3) for b in range(3)]
        ),
    )


def _grid(first: int, second: int, weight: float) -> np.ndarray:
    """Return positions of two properties, of which the second counts less."""
    return np.array([[a / (first - 1), weight * b / (second - 1)] for a in range(first) for b in range(second)])


def _exhibit(name: str, title: str, positions: np.ndarray, answers: int, labels: list[str]) -> Exhibit:
    return Exhibit(name, title, given_world(positions, name=name), answers, tuple(labels))


def record(exhibit: Exhibit) -> None:
    """Let simulated people answer random queries, and write their answers."""
    queries = exhibit.world.random_queries(exhibit.answers, stream(1, "queries"))
    triplets = exhibit.world.answer(queries, stream(1, "answers"))
    RECORDED.mkdir(exist_ok=True)
    _write(exhibit.recorded, triplets.tolist())
    if exhibit.name == "faces":
        _write(ANALYSED, [[exhibit.labels[index] for index in row] for row in triplets])


def _write(path: Path, rows: list[list[int]] | list[list[str]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("head", "winner", "loser"))
        writer.writerows(rows)


def draw(exhibit: Exhibit) -> str:
    """Draw the map and the curve of one example; return its section of the page."""
    triplets = read_bytes(exhibit.recorded.read_bytes(), name=exhibit.recorded.name).triplets
    n, d = exhibit.world.coordinates.shape
    judge = Judge.of(exhibit.world)
    model = OrdinalEmbedding(n_components=d, n_targets=n, random_state=0).fit(triplets)
    drawing = model.plot(exhibit.labels, pictures=_pictures(exhibit), width_mm=MAP_MM)
    drawing.save(GALLERY / f"{exhibit.name}-map.svg")
    counts = [round(part * len(triplets)) for part in PARTS]
    grown = [OrdinalEmbedding(n_components=d, n_targets=n, random_state=0).fit(triplets[:count]) for count in counts]
    reached = [judge.accuracy(each.embedding_) for each in grown]
    possible = bayes_accuracy(exhibit.world)
    figure = draw_curves(
        [DrawnCurve("fresh answers", counts, reached)], lines=[("possible", possible)], marks=False, width_mm=CURVE_MM
    )
    (GALLERY / f"{exhibit.name}-curve.svg").write_bytes(figure_bytes(figure, "svg"))
    predicted = _held_out(triplets, n, d)
    return f"""
## {exhibit.title}

| targets | dimensions | answers | predicted | fresh answers | possible |
|---|---|---|---|---|---|
| {n} | {d} | {len(triplets):,} | {predicted:.1%} | {reached[-1]:.1%} | {possible:.1%} |

![The map of the example {exhibit.name}](gallery/{exhibit.name}-map.svg)

![Accuracy against answers](gallery/{exhibit.name}-curve.svg)
"""


def _held_out(triplets: np.ndarray, n: int, d: int) -> float:
    """Return the share of answers that maps fitted without them predict."""
    right = 0.0
    folds = grouped_folds(triplets, 5, stream(1, "folds"))
    for fold in range(folds.max() + 1):
        held = folds == fold
        model = OrdinalEmbedding(n_components=d, n_targets=n, random_state=0).fit(triplets[~held])
        right += model.score(triplets[held]) * held.sum()
    return right / len(triplets)


def _pictures(exhibit: Exhibit) -> dict[int, bytes] | None:
    """Return the files of targets that are pictures, by index."""
    if exhibit.name == "colors":
        square = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="40"><rect width="40" height="40" fill="hsl({}, 70%, 55%)"/></svg>'
        return {place: square.format(30 * place).encode() for place in range(len(exhibit.labels))}
    archive = REPOSITORY / "examples" / exhibit.name / "targets.zip"
    if not exhibit.labels[0].endswith(".svg"):
        return None
    with zipfile.ZipFile(archive) as opened:
        return {place: opened.read(name) for place, name in enumerate(exhibit.labels)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="let the simulated people answer again")
    again = parser.parse_args().record
    GALLERY.mkdir(exist_ok=True)
    sections = []
    for exhibit in exhibits():
        if again:
            record(exhibit)
        sections.append(draw(exhibit))
        print(sections[-1].split("\n\n")[1])
    PAGE.write_text(ABOUT + "".join(sections))


if __name__ == "__main__":
    main()
