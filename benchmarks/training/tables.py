"""Generate the tables of the manual from the recorded figures, so that they cannot differ.

    python -m benchmarks.training.tables

rewrites every block of docs/training.md between `<!-- figures: NAME -->` and `<!-- end -->`.
"""

import json
import re
from collections.abc import Callable
from pathlib import Path

from benchmarks.training.figure import FOLDER
from benchmarks.training.markdown import Document, dash, select_rows, small, table, two, whole

MANUAL = Path("docs/training.md")
_BLOCK = re.compile(r"<!-- figures: (?P<name>[a-z_ ]+) -->\n(?P<text>.*?)\n<!-- end -->", re.DOTALL)


def rewrite(manual: str, folder: Path = FOLDER) -> str:
    """Return the manual with every block generated from the figures in a folder."""

    def block(found: re.Match[str]) -> str:
        name = found["name"]
        document = json.loads((folder / f"{FIGURES[name]}.json").read_text())
        return f"<!-- figures: {name} -->\n{BLOCKS[name](document)}\n<!-- end -->"

    return _BLOCK.sub(block, manual)


def blocks(manual: str) -> dict[str, str]:
    """Return the blocks of a manual by name."""
    return {found["name"]: found["text"] for found in _BLOCK.finditer(manual)}


def growth_on_linear_network(document: Document) -> str:
    """Updates and epochs to a test loss."""
    return table(
        ("method", "reached", "updates", "epochs", "SGD's updates / its own"),
        (
            (row["method"], row["reached"], whole(row["updates"]), two(row["epochs"]), two(row["fewer"]))
            for row in select_rows(document, problem="linear network")
        ),
    )


def growth_on_the_way(document: Document) -> str:
    """Updates and epochs of a few methods to several test losses."""
    rows = {(row["share"], row["method"]): row for row in select_rows(document, problem="linear network, on the way")}
    shares = sorted({share for share, _ in rows}, reverse=True)
    return table(
        ("test loss / least", "SGD: updates", "epochs", "AdaDamp: updates", "epochs", "RadaDamp: updates", "epochs"),
        (
            (
                f"{share:g}",
                *(
                    shown
                    for method in ("SGD", "AdaDamp", "RadaDamp")
                    for shown in (whole(rows[share, method]["updates"]), two(rows[share, method]["epochs"]))
                ),
            )
            for share in shares
        ),
    )


def growth_on_digits(document: Document) -> str:
    """Updates and results of thirty epochs."""
    return table(
        ("schedule", "updates", "SGD's / its own", "test loss", "test accuracy"),
        (
            (
                row["method"],
                whole(row["updates"]),
                f"{row['fewer']:.2f}",
                f"{row['test_loss']:.3f}",
                f"{row['test_accuracy']:.3f}",
            )
            for row in select_rows(document, problem="digits")
        ),
    )


def growth_race(document: Document) -> str:
    """Updates and epochs on digits to a test loss that is reached early."""
    return table(
        ("schedule", "reached", "updates", "SGD's / its own", "epochs", "its own / SGD's"),
        (
            (
                row["method"], row["reached"], whole(row["updates"]), f"{row['fewer']:.2f}", f"{row['epochs']:.1f}",
                f"{row['more_epochs']:.2f}",
            )
            for row in select_rows(document, problem="digits, race")
        ),
    )  # fmt: skip


def network_clock(document: Document) -> str:
    """Minutes of the published schedules on three networks."""
    networks = ("moderate", "high", "centralised")
    rows = {(row["schedule"], row["network"]): row for row in document["rows"]}
    heads = [f"{network}: published | model | with overhead" for network in networks]
    lines: list[list[str]] = []
    for row in select_rows(document, network=networks[0]):
        found = [rows[row["schedule"], network] for network in networks]
        minutes = [f"{each[key]:.1f}" for each in found for key in ("source_min", "model_min", "fitted_min")]
        lines.append([row["schedule"], whole(row["updates"]), *minutes])
    return table(" | ".join(("schedule", "updates", *heads)).split(" | "), lines)


def periods(document: Document) -> str:
    """Losses and synchronisations of sixteen virtual ranks."""
    return table(
        (
            *("problem", "method", "training loss", "range", "test loss", "test accuracy", "synchronisations"),
            *("weighted variance", "last period"),
        ),
        (
            (
                row["problem"], row["method"], small(row["train_loss"]), f"{small(row['least'])} to {small(row['most'])}",
                f"{row['test_loss']:.4f}", f"{row['test_accuracy']:.3f}", whole(row["synchronisations"]), two(row["variance"]), two(row["last_period"]),
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def compression(document: Document) -> str:
    """Bytes, variance and time over a slow link."""
    return table(
        (
            *("compression", "bytes of a gradient", "variance / ‖g‖²", "learning rate", "steps", "kB to the target"),
            *("seconds over 4 Mbit/s", "speed-up", "seconds over 1 Mbit/s", "speed-up"),
        ),
        (
            (
                row["code"], whole(row["bytes"]), two(row["variance"]), f"{row['rate']:g}", whole(row["steps_to"]),
                whole(row["kilobytes_to"]), f"{row['link_s']:.2f}", two(row["times_none"]),
                f"{row['slower_s']:.2f}", two(row["slower_times_none"]),
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def traffic(document: Document) -> str:
    """Bytes on the sockets of a step, relative to a dense all-reduce, for each number of ranks."""
    rows = {(row["code"], row["ranks"]): row for row in document["rows"]}
    ranks = sorted({count for _, count in rows})
    return table(
        ("what is sent", *(f"{count} ranks, kB" for count in ranks), *(f"{count} ranks / dense" for count in ranks)),
        (
            (
                "dense, all-reduce" if code == "none" else code,
                *(whole(rows[code, count]["socket_bytes"] / 1e3) for count in ranks),
                *(two(rows[code, count]["times_dense"]) for count in ranks),
            )
            for code in dict.fromkeys(row["code"] for row in document["rows"])
        ),
    )


def coding(document: Document) -> str:
    """Bytes of coded gradients, and of runs to a target."""
    return table(
        ("what is sent", "bytes of a gradient", "bits of an entry", "variance / ‖g‖²", "learning rate", "steps", "kB to the target", "/ dense"),
        (
            (
                "dense" if row["code"] == "none" else row["code"], whole(row["bytes"]), two(row["bits_entry"]), two(row["variance"]),
                f"{row['rate']:g}", whole(row["steps"]), whole(row["kilobytes"]), f"{row['share']:.4f}",
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def torch_hooks(document: Document) -> str:
    """Updates, agreements and bytes of torch's methods and ours to a test loss."""
    return table(
        ("problem", "of", "method", "learning rate", "reached", "updates", "agreements", "kB of one rank", "updates / averaged gradients", "kB / averaged gradients"),
        (
            (
                row["problem"], "torch" if row["of_torch"] else "salmon", row["method"], dash(row["rate"], "g"), row["reached"],
                *(dash(row.get(name), ",.0f") for name in ("updates", "agreements", "kilobytes")),
                dash(row.get("updates_share"), ".2f"), dash(row.get("share"), ".4f"),
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def replicas(document: Document) -> str:
    """Epochs, updates and seconds to a target, with the same total batch."""
    return table(
        ("problem", "total batch", "method", "learning rate", "epochs to 97 %", "/ one model", "updates", "CPU seconds", "/ one model"),
        (
            (
                row["problem"], str(row["total_batch"]), row["method"] if row["method"] != "Crossbow" else f"Crossbow({row['replicas']}) × 16",
                *(
                    dash(row.get(name), form)
                    for name, form in (
                        ("rate", "g"), ("epochs", ".1f"), ("epochs_sgd", ".2f"), ("updates", ",.0f"), ("seconds", ".2f"), ("times_sgd", ".2f"),
                    )
                ),
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def noise_scale(document: Document) -> str:
    """Seconds to a target."""
    return table(
        ("problem", "batch", "reached", "CPU seconds", "updates", "epochs", "time saved against the better constant"),
        (
            (
                row["problem"], row["method"], row["reached"], f"{row['seconds']:.3f}", whole(row["updates"]), f"{row['epochs']:.1f}",
                row["sooner_than_best"] or "–",
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def hyperband_share(document: Document) -> str:
    """How much of the work of random search Hyperband needs."""
    return table(
        ("problem", "work to reach", "share of random search's calls", "seeds", "best score", "best score of random search"),
        (
            (
                row["problem"], row["what"].removeprefix("share of random search's calls to "), f"{row['share']:.2f}", row["reached"],
                f"{row['hyperband_score']:.4f}", f"{row['random_score']:.4f}",
            )
            for row in document["rows"]
            if "share" in row
        ),
    )  # fmt: skip


def hyperband_workers(document: Document) -> str:
    """Replayed minutes with 1 to 32 workers."""
    return table(
        (
            *("problem", "workers (replayed)", "minutes", "minutes to 99 % of the best score"),
            *("time with / without priorities, to the best score", "to 99 % of it"),
        ),
        (
            (
                row["problem"], row["what"].split()[1], f"{row['minutes']:.1f}", f"{row['to_99']:.1f}", f"{row['share_of_fifo']:.2f}",
                f"{row['share_99']:.2f}",
            )
            for row in document["rows"]
            if "minutes" in row
        ),
    )  # fmt: skip


def new_problems(document: Document) -> str:
    """Updates, epochs, agreements and bytes to equal loss, relative to the twin."""
    figures = ("updates", "epochs", "agreements", "bytes")
    return table(
        ("problem", "system", "reached", "updates", "epochs", "agreements", "kB", *(f"{name} / twin's" for name in figures)),
        (
            (
                row["problem"], "plain twin" if row["system"] == "plain" else row["system"], row["reached"],
                *(dash(row[name], form) for name, form in zip(figures[:3], (",.0f", ".1f", ",.0f"), strict=True)),
                "–" if row["bytes"] is None else whole(row["bytes"] / 1e3), *(dash(row[f"{name}_share"], ".2f") for name in figures),
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def default_batch(document: Document) -> str:
    """Last batch, updates and test loss of each rule, relative to a constant batch."""
    return table(
        ("problem", "rule", "largest batch", "updates", "/ constant batch", "test loss", "/ constant batch", "verdict"),
        (
            (
                row["problem"], row["rule"], whole(row["last_batch"]), whole(row["updates"]), f"{row['updates_share']:.2f}",
                small(row["test_loss"]), f"{row['share']:.2f}", row["verdict"],
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def optuna_search(document: Document) -> str:
    """Best scores of Optuna's searches and ours with as many partial_fit calls."""
    return table(
        (
            *("problem", "search", "partial_fit calls", "models", "best score", "range", "seeds better / worse than ours"),
            *("calls to 99 % of our best score", "seeds", "seconds"),
        ),
        (
            (
                row["problem"], row["method"], whole(row["budget"]), whole(row["models"]), f"{row['score']:.4f}",
                f"{row['least']:.4f} to {row['most']:.4f}", "–" if row["method"] == "HyperbandSearch" else f"{row['wins']} / {row['losses']}",
                dash(row["calls"], ",.0f"), str(row["reached"]), f"{row['seconds']:.0f}",
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def scaling(document: Document) -> str:
    """Answers per second of one process, two apart and two together."""
    return table(
        (
            *("answers per step and process", "synchronised", "one process, answers/s", "two apart", "two together"),
            *("together / apart", "quartiles"),
        ),
        (
            (
                whole(row["batch_each"]), row["synchronised"], whole(row["one"]), whole(row["two_apart"]), whole(row["together"]),
                f"{row['share']:.0%}", f"{row['share_q1']:.0%} to {row['share_q3']:.0%}",
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def large_embedding(document: Document) -> str:
    """Seconds of fits to 10,000,000 answers until a log-loss is reached."""
    return table(
        ("method", "processes", "seconds to the log-loss", "CPU seconds of a process", "times one process", "in CPU seconds"),
        (
            (
                row["method"], whole(row["processes"]), dash(row["to_target_s"], ".2f"), dash(row["cpu_s"], ".2f"), dash(row["times_one"], ".2f"),
                dash(row["times_one_cpu"], ".2f"),
            )
            for row in document["rows"]
        ),
    )  # fmt: skip


def notes(document: Document) -> str:
    """Return a benchmark's notes, with the load of the machine at its end."""
    return "\n".join(
        f"* {note}" for note in (*document["notes"], f"Load average at the end: {document['machine']['load']:.1f}.")
    )


#: Block of the manual -> the function that generates it; `FIGURES` has the name of the JSON file.
BLOCKS: dict[str, Callable[[Document], str]] = {
    "growth on the linear network": growth_on_linear_network,
    "growth on the way": growth_on_the_way,
    "growth on digits": growth_on_digits,
    "growth race": growth_race,
    "network clock": network_clock,
    "network clock notes": notes,
    "periods": periods,
    "periods notes": notes,
    "compression": compression,
    "compression notes": notes,
    "coding": coding,
    "coding notes": notes,
    "traffic": traffic,
    "traffic notes": notes,
    "torch hooks": torch_hooks,
    "torch hooks notes": notes,
    "replicas": replicas,
    "replicas notes": notes,
    "noise scale": noise_scale,
    "noise scale notes": notes,
    "hyperband share": hyperband_share,
    "hyperband workers": hyperband_workers,
    "new problems": new_problems,
    "new problems notes": notes,
    "default batch": default_batch,
    "default batch notes": notes,
    "optuna search": optuna_search,
    "optuna search notes": notes,
    "scaling": scaling,
    "scaling notes": notes,
    "large embedding": large_embedding,
    "large embedding notes": notes,
}
FIGURES = {
    name: "batch_growth"
    if name.startswith("growth")
    else "hyperband"
    if name.startswith("hyperband")
    else name.removesuffix(" notes").replace(" ", "_")
    for name in BLOCKS
}


def main() -> None:
    MANUAL.write_text(rewrite(MANUAL.read_text()))


if __name__ == "__main__":
    main()
