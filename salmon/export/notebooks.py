"""Write the analysis files of a bundle: a notebook in plain Python and a script in plain R."""

import json

_CELLS: tuple[tuple[str, str], ...] = (
    (
        "markdown",
        """# First look at {slug}

Run this notebook in the folder of the unpacked bundle. It needs Python only; the map is drawn if matplotlib is there.
`README.md` says what each column means.""",
    ),
    (
        "code",
        """import csv
import statistics


def table(name):
    with open(name, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


responses = table("responses.csv")
participants = table("participants.csv")
targets = table("targets.csv")
kept = [row for row in responses if row["excluded"] == "false"]
print(f"{len(responses)} answers of {len({row['participant'] for row in responses})} participants, {len(kept)} kept;"
      f" {len(targets)} targets")""",
    ),
    ("markdown", "## How carefully did people answer?\n\nParticipants with flags, and why."),
    (
        "code",
        """quality = table("quality.csv")
for row in quality:
    if row["flags"]:
        print(row["participant"], "kept" if row["keep"] == "true" else "left out", "-", row["reasons"])
times = [float(row["median_rt_ms"]) for row in quality if row["median_rt_ms"]]
if times:
    print(f"median response time of a participant: {statistics.median(times):.0f} ms")""",
    ),
    ("markdown", "## Which queries were asked?"),
    (
        "code",
        """counts = {}
for row in kept:
    key = row["sampler"], row["trial_type"]
    counts[key] = counts.get(key, 0) + 1
for (sampler, trial_type), count in sorted(counts.items()):
    print(f"{sampler:20} {trial_type:12} {count}")""",
    ),
    (
        "markdown",
        """## The triplets

Each is (head, winner, loser). Checks (catch, repeat and shared trials) are left out.""",
    ),
    (
        "code",
        """triplets = [(int(row["head"]), int(row["winner"]), int(row["loser"]))
            for row in kept if row["phase"] == "main" and row["trial_type"] not in ("catch", "repeat", "shared")]
print(triplets[:5])""",
    ),
    (
        "markdown",
        """## The map

The newest embedding of each sampler, and the share of answers to random queries in which the winner is nearer. The
embedding has learned from most of these answers: for an unbiased figure see `accuracy` in `models.csv`.""",
    ),
    (
        "code",
        """maps = {}
for row in table("embeddings.csv"):
    point = [float(row[name]) for name in row if name.startswith("dim_") and row[name]]
    maps.setdefault(row["sampler"], {})[int(row["target_id"])] = point


def distance(a, b):
    return sum((x - y) ** 2 for x, y in zip(a, b))


drawn_at_random = [(int(row["head"]), int(row["winner"]), int(row["loser"]))
                   for row in kept if row["trial_type"] in ("random", "fallback", "held_out")]
for sampler, points in maps.items():
    seen = [t for t in drawn_at_random if all(index in points for index in t)]
    right = sum(distance(points[h], points[w]) < distance(points[h], points[l]) for h, w, l in seen)
    print(sampler, f"{right / len(seen):.3f} of {len(seen)} random answers" if seen else "no random answers")""",
    ),
    (
        "code",
        """try:
    import matplotlib.pyplot as plt
except ImportError:
    print("matplotlib is not installed: no picture")
else:
    names = {int(row["target_id"]): row["filename"] for row in targets}
    for sampler, points in maps.items():
        plane = {index: (point + [0.0, 0.0])[:2] for index, point in points.items()}
        figure, axes = plt.subplots(figsize=(7, 7))
        axes.scatter([x for x, _ in plane.values()], [y for _, y in plane.values()], s=12)
        for index, (x, y) in plane.items():
            axes.annotate(names.get(index, str(index))[:20], (x, y), fontsize=7)
        axes.set_aspect("equal")
        axes.set_title(sampler)
        plt.show()""",
    ),
)


def notebook(slug: str) -> str:
    """Return the notebook as the JSON of its format 4."""
    cells = [
        {
            "cell_type": kind,
            "id": f"cell-{place}",
            "metadata": {},
            "source": (source.replace("{slug}", slug) if kind == "markdown" else source).splitlines(keepends=True),
            **({"execution_count": None, "outputs": []} if kind == "code" else {}),
        }
        for place, (kind, source) in enumerate(_CELLS)
    ]
    content = {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(content, ensure_ascii=False, indent=1) + "\n"


def r_script(slug: str) -> str:
    """Return the script for R; base R only."""
    return _R.replace("{slug}", slug)


_R = """# First look at {slug}. Run it in the folder of the unpacked bundle: Rscript analysis.R
# Base R only. README.md says what each column means.

# `true` and `false` become logical; check.names = FALSE keeps names as they are in the files.
read_table <- function(name) {
  table <- read.csv(name, check.names = FALSE, na.strings = "", encoding = "UTF-8", stringsAsFactors = FALSE)
  for (column in names(table)) {
    cells <- table[[column]]
    if (is.character(cells) && any(!is.na(cells)) && all(cells %in% c("true", "false", NA))) {
      table[[column]] <- cells == "true"
    }
  }
  table
}

responses <- read_table("responses.csv")
quality <- read_table("quality.csv")
targets <- read_table("targets.csv")

kept <- responses[!responses$excluded, ]
cat(nrow(responses), "answers,", nrow(kept), "kept;", nrow(targets), "targets\\n")

# Who is left out, and why
left_out <- quality[!quality$keep, c("participant", "flags", "reasons")]
print(left_out, row.names = FALSE)

# Which queries were asked
print(table(kept$sampler, kept$trial_type))

# Response times
cat("median response time:", median(kept$rt_ms, na.rm = TRUE), "ms\\n")

# The triplets: head, winner, loser
triplets <- kept[kept$phase == "main" & !kept$trial_type %in% c("catch", "repeat", "shared"), c("head", "winner", "loser")]
print(head(triplets))

# The map of each sampler
embeddings <- read_table("embeddings.csv")
for (sampler in unique(embeddings$sampler)) {
  map <- embeddings[embeddings$sampler == sampler, ]
  if (!all(c("dim_0", "dim_1") %in% names(map))) next
  plot(map$dim_0, map$dim_1, asp = 1, pch = 20, xlab = "dim_0", ylab = "dim_1", main = sampler)
  text(map$dim_0, map$dim_1, labels = map$target_filename, pos = 3, cex = 0.6)
}
"""
