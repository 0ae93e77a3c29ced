"""Held-out accuracy on human answers: the learned noise against fixed noise models, and
against cblearn if it is installed.

    OMP_NUM_THREADS=1 python -m benchmarks.noise_models --data eggs.csv.gz materials.csv.gz

Every contender fits the same answers of each split and is judged on the same others. `loss` is how far the default lies
behind a contender (negative: ahead), with the standard error of the paired difference over splits; `seconds` is
processor time.
"""

import argparse
import importlib.util
import time
from pathlib import Path

import numpy as np

from benchmarks.human_answers import divide, present, read_human
from salmon.learning import accuracy, fit
from salmon.learning.noise_learning import RECOMMENDED_NOISE, fit_with_learned_noise

DEFAULT = "learned (default)"
FIXED = {
    "recommended, fixed": RECOMMENDED_NOISE,
    "TSTE": "TSTE",
    "STE": "STE",
    "CKL": "CKL",
    "SOE": "SOE",
    "GNMDS": "GNMDS",
}
PEERS = ("SOE", "STE", "CKL", "TSTE")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="files of human answers")
    parser.add_argument("--splits", type=int, default=20)
    parser.add_argument("--peer-splits", type=int, default=20, help="splits on which cblearn is fitted too")
    parser.add_argument("--d", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--answers", type=int, nargs="+", default=[20, 0], help="answers a target; 0: all")
    options = parser.parse_args()
    peers = PEERS if importlib.util.find_spec("cblearn") else ()
    for path in present(options.data):
        n, triplets = read_human(path)
        for per_target in options.answers:
            for d in options.d:
                compare(path.stem, n, triplets, per_target, d, options, peers)


def compare(name, n, triplets, per_target, d, options, peers):
    scores, seconds = {}, {}
    for seed in range(options.splits):
        rows, judged = divide(triplets, seed)
        rows = rows[: per_target * n] if per_target else rows
        contenders = contenders_of(rows, n, d, seed) | (
            {f"cblearn {peer}": peer_of(peer, rows, d, seed) for peer in peers} if seed < options.peer_splits else {}
        )
        for contender, run in contenders.items():
            began = time.process_time()
            coordinates = run()
            seconds.setdefault(contender, []).append(time.process_time() - began)
            scores.setdefault(contender, []).append(accuracy(coordinates, judged))
    print(f"\n{name}, {len(rows):,} answers, d = {d}, {options.splits} splits\n")
    print("| noise | accuracy | loss | ± | seconds |\n| --- | --- | --- | --- | --- |")
    for contender, values in sorted(scores.items(), key=lambda item: -np.mean(item[1])):
        behind = np.array(values) - np.array(scores[DEFAULT][: len(values)])
        error = behind.std(ddof=1) / np.sqrt(len(behind)) if len(behind) > 1 else np.nan
        print(
            f"| {contender} | {np.mean(values):.4f} | {behind.mean():+.4f} | {error:.4f} |"
            f" {np.median(seconds[contender]):.3f} |",
            flush=True,
        )


def contenders_of(rows, n, d, seed):
    learned = {DEFAULT: lambda: fit_with_learned_noise(rows, n, d, seed=seed).coordinates}
    return learned | {
        name: lambda noise=noise: fit(rows, n, d, noise=noise, seed=seed).coordinates for name, noise in FIXED.items()
    }


def peer_of(name, rows, d, seed):
    def run():
        from cblearn import embedding

        return getattr(embedding, name)(d, random_state=1000 + seed).fit(rows).embedding_

    return run


if __name__ == "__main__":
    main()
