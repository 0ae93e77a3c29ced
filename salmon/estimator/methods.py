"""Write what a paper says about a fit: a paragraph for the section on methods, and the
works that it cites as BibTeX.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from salmon.errors import listed

if TYPE_CHECKING:
    from salmon.estimator.report import FitReport

#: Key of a cited work -> its BibTeX entry.
WORKS = {
    "agarwal2007": """@inproceedings{agarwal2007,
  author = {Agarwal, Sameer and Wills, Josh and Cayton, Lawrence and Lanckriet, Gert and Kriegman, David and Belongie, Serge},
  title = {Generalized non-metric multidimensional scaling},
  booktitle = {Proceedings of the Eleventh International Conference on Artificial Intelligence and Statistics},
  year = {2007}
}""",
    "breiman1984": """@book{breiman1984,
  author = {Breiman, Leo and Friedman, Jerome H. and Olshen, Richard A. and Stone, Charles J.},
  title = {Classification and Regression Trees},
  publisher = {Wadsworth},
  year = {1984}
}""",
    "maaten2012": """@inproceedings{maaten2012,
  author = {van der Maaten, Laurens and Weinberger, Kilian},
  title = {Stochastic triplet embedding},
  booktitle = {IEEE International Workshop on Machine Learning for Signal Processing},
  year = {2012}
}""",
    "sievert2023": """@article{sievert2023,
  author = {Sievert, Scott and Nowak, Robert and Rogers, Timothy},
  title = {Efficiently learning relative similarity embeddings with crowdsourcing},
  journal = {Journal of Open Source Software},
  year = {2023}
}""",
    "tamuz2011": """@inproceedings{tamuz2011,
  author = {Tamuz, Omer and Liu, Ce and Belongie, Serge and Shamir, Ohad and Kalai, Adam Tauman},
  title = {Adaptively learning the crowd kernel},
  booktitle = {Proceedings of the 28th International Conference on Machine Learning},
  year = {2011}
}""",
    "terada2014": """@inproceedings{terada2014,
  author = {Terada, Yoshikazu and von Luxburg, Ulrike},
  title = {Local ordinal embedding},
  booktitle = {Proceedings of the 31st International Conference on Machine Learning},
  year = {2014}
}""",
}
#: Name of a noise model -> what it is called in print, and the work that introduced it.
_MODELS = {
    "PowerTSTE": ("stochastic triplet embedding with heavy tails and a lapse rate", "maaten2012"),
    "TSTE": ("t-distributed stochastic triplet embedding", "maaten2012"),
    "STE": ("stochastic triplet embedding", "maaten2012"),
    "CKL": ("the crowd kernel", "tamuz2011"),
    "GNMDS": ("generalized non-metric multidimensional scaling", "agarwal2007"),
    "SOE": ("soft ordinal embedding", "terada2014"),
    "Logistic": ("a logistic model of distances", ""),
}


def methods_paragraph(report: FitReport) -> str:
    """Return a paragraph about the answers, the model, how it was chosen and judged; works are cited as [@key]."""
    n, d = report.coordinates.shape
    name = type(report.noise).__name__
    parameters = listed([f"{key} = {value:.3g}" for key, value in asdict(report.noise).items()], "and")
    first = (
        f"We fitted an ordinal embedding of {n} targets in {d} dimension{'s' if d > 1 else ''} to {report.answers:,}"
        f" triplet judgements with Salmon [@sievert2023], by {_called(name)}"
        f"{f' ({parameters})' if parameters else ''} and a ridge penalty of {report.ridge:.3g}."
    )
    sentences = [first]
    if report.choice is not None:
        dimensions = sorted({pair[0] for pair in report.choice.accuracy})
        noises = sorted({pair[1] for pair in report.choice.accuracy})
        sentences.append(
            f"Dimensions ({listed([str(one) for one in dimensions], 'and')}) and noise models"
            f" ({listed([_called(one) for one in noises], 'and')}) were compared on the same folds of"
            f" {report.options.folds}-fold cross-validation; among the candidates within one standard error of the most"
            " accurate, we took the one with the fewest dimensions [@breiman1984]."
        )
        others = [pair for pair in report.choice.ties if pair != report.choice.chosen]
        if others:
            ties = listed([f"{pair[0]} dimension{'s' if pair[0] > 1 else ''} with {pair[1]}" for pair in others], "and")
            sentences.append(f"The answers do not distinguish it from {ties}.")
    if report.held_out is not None:
        sentences.append(
            f"Judged on the {report.random_answers:,} answers to randomly chosen queries, with all answers about the same three"
            f" targets held out together, it predicts {_percent(report.held_out.value)} of new judgements (95 % interval"
            f" {_percent(report.held_out.low)} to {_percent(report.held_out.high)})."
        )
    else:
        sentences.append("Too few queries were chosen at random to judge its accuracy on new judgements.")
    if report.ceiling is not None:
        sentences.append(
            f"From {report.ceiling.queries:,} queries that were asked more than once, no embedding can predict more than"
            f" {_percent(report.ceiling.ceiling.value)} ({_percent(report.ceiling.ceiling.low)} to"
            f" {_percent(report.ceiling.ceiling.high)})."
        )
    return " ".join(sentences)


def bibliography(paragraph: str) -> str:
    """Return the BibTeX entries of the works that a paragraph cites."""
    return "\n\n".join(entry for key, entry in WORKS.items() if f"[@{key}]" in paragraph) + "\n"


def _called(name: str) -> str:
    called, work = _MODELS[name]
    return f"{called} [@{work}]" if work else called


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
