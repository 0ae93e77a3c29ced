"""From a file of answers to the figure of a paper: python examples/analysis/analyse.py [responses.csv] [figure.pdf]

`responses.csv` beside this file holds answers of simulated people to the example `faces`; any file that Salmon exports
takes its place. The script fits embeddings of one to three dimensions, says how well each predicts answers that it has
not seen, and draws the map of the best.
"""  # noqa: INP001

import sys
from pathlib import Path

from sklearn.model_selection import GroupKFold, cross_val_score

from salmon import OrdinalEmbedding
from salmon.answer_files import read_bytes
from salmon.estimator import triple_groups

HERE = Path(__file__).parent


def main(responses: Path = HERE / "responses.csv", figure: Path = Path("figure.pdf")) -> None:
    """Fit, compare and draw."""
    table = read_bytes(responses.read_bytes(), name=responses.name)
    triplets = table.triplets  # rows [head, winner, loser]
    print(f"{len(triplets):,} answers about {len(table.labels)} targets")
    groups = triple_groups(triplets)  # answers to one query, asked twice, stay in one fold
    scores = {}
    for dimensions in (1, 2, 3):
        model = OrdinalEmbedding(n_components=dimensions, n_targets=len(table.labels), random_state=0)
        scores[dimensions] = cross_val_score(model, triplets, groups=groups, cv=GroupKFold(5)).mean()
        print(f"{dimensions} dimensions predict {scores[dimensions]:.1%} of held-out answers")
    best = max(scores, key=scores.__getitem__)
    model = OrdinalEmbedding(n_components=best, random_state=0).fit(triplets)
    model.plot([Path(label).stem for label in table.labels], width_mm=85).save(figure)
    print(f"{figure}: the map in {best} dimensions")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
