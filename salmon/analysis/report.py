"""What a fit has to say about itself, for a reader and for a program."""

from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from salmon.analysis.ceiling import NoiseCeiling
from salmon.analysis.choice import Choice
from salmon.analysis.held_out import Interval
from salmon.noise import NoiseModel

Floats = NDArray[np.float64]

#: The name of the recommended noise model where several are compared.
RECOMMENDED = "PowerTSTE"


@dataclass(frozen=True)
class FitOptions:
    """What the user decided. `dimensions` with several entries and `noise` = "choose" ask for a choice on held-out answers."""

    dimensions: tuple[int, ...] = (2,)
    noise: str = RECOMMENDED
    lapse: float | None = None
    choose_lapse: bool = False
    ridge: float = 0.03
    folds: int = 10
    repeats: int = 1
    seed: int = 0


@dataclass(frozen=True)
class FitReport:
    """An embedding with its figures.

    `coordinates` (n, d), centred, widest axis first; `covariance` (n, d, d) of each position with the motions of the
    whole map projected out. `held_out` is None where no random answers could be kept back; `test_accuracy` is on answers
    of a test set; `starts` is the objective reached from each start.
    """

    coordinates: Floats
    covariance: Floats
    noise: NoiseModel
    options: FitOptions
    answers: int
    random_answers: int
    fitted_accuracy: float
    fitted_log_loss: float
    converged: bool
    starts: dict[str, float]
    held_out: Interval | None
    held_out_log_loss: float | None
    test_accuracy: Interval | None
    ceiling: NoiseCeiling | None
    dimension_choice: Choice[int] | None
    noise_choice: Choice[str] | None
    lapse_losses: dict[str, float] = field(default_factory=dict[str, float])
    notes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Plain values for a JSON file; coordinates stay in the embedding's own file."""
        return {
            "n_targets": len(self.coordinates),
            "n_components": self.coordinates.shape[1],
            "noise": {"name": type(self.noise).__name__, **asdict(self.noise)},
            "options": {**asdict(self.options), "dimensions": list(self.options.dimensions)},
            "answers": {"fitted": self.answers, "random": self.random_answers},
            "fitted": {"accuracy": self.fitted_accuracy, "log_loss": self.fitted_log_loss},
            "starts": self.starts,
            "converged": self.converged,
            "held_out": {**_plain(self.held_out), "log_loss": self.held_out_log_loss} if self.held_out else None,
            "test_set": _plain(self.test_accuracy) if self.test_accuracy else None,
            "noise_ceiling": self.ceiling and asdict(self.ceiling),
            "dimension_choice": self.dimension_choice and _choice(self.dimension_choice),
            "noise_choice": self.noise_choice and _choice(self.noise_choice),
            "lapse_choice": self.lapse_losses,
            "uncertainty": {"standard_deviation": np.sqrt(np.trace(self.covariance, axis1=1, axis2=2)).tolist()},
            "notes": list(self.notes),
        }

    def as_text(self) -> str:
        """The same for a reader."""
        n, d = self.coordinates.shape
        parameters = ", ".join(f"{name} = {value:g}" for name, value in asdict(self.noise).items())
        lines = [
            f"{n} targets in {d} dimension{'s' if d > 1 else ''}, from {self.answers:,} answers.",
            f"Noise model: {type(self.noise).__name__} ({parameters}); ridge {self.options.ridge:g}.",
            f"Accuracy on the fitted answers: {self.fitted_accuracy:.3f} (log-loss {self.fitted_log_loss:.3f} nats).",
        ]
        if self.held_out is not None:
            lines += [
                f"Held-out accuracy: {self.held_out} (95 % interval), log-loss {self.held_out_log_loss:.3f} nats,",
                f"  on {self.random_answers:,} random answers in {self.options.folds} folds, grouped by their three targets.",
            ]
        else:
            lines.append("Held-out accuracy: none, for too few queries were chosen at random.")
        if self.test_accuracy is not None:
            lines.append(f"Accuracy on the test set: {self.test_accuracy} (95 % interval).")
        if self.ceiling is not None:
            lines += [
                f"Noise ceiling: at most {self.ceiling.ceiling} (95 % interval),",
                f"  from {self.ceiling.answers:,} answers to {self.ceiling.queries:,} repeated queries;",
                f"  two answers to one query agree with chance {self.ceiling.agreement.value:.3f}.",
            ]
        else:
            lines.append("Noise ceiling: unknown, for no query was answered twice.")
        spread = max(self.starts.values()) - min(self.starts.values())
        lines.append(
            f"Starts: {len(self.starts)}, the best objective {min(self.starts.values()):.4f}, spread {spread:.4f}."
        )
        if not self.converged:
            lines.append("The fit had not converged when its iterations were used up.")
        lines += _choice_lines("Dimensions", self.dimension_choice) + _choice_lines("Noise models", self.noise_choice)
        lines += [f"Note: {note}" for note in self.notes]
        return "\n".join(lines) + "\n"


def _plain(interval: Interval) -> dict[str, float]:
    return {"accuracy": interval.value, "low": interval.low, "high": interval.high}


def _choice(choice: Choice[Any]) -> dict[str, Any]:
    figures = {str(key): {**_plain(choice.accuracy[key]), "log_loss": choice.log_loss[key]} for key in choice.accuracy}
    return {"chosen": choice.chosen, "reason": choice.reason, "candidates": figures}


def _choice_lines(title: str, choice: Choice[Any] | None) -> list[str]:
    if choice is None:
        return []
    rows = [
        f"  {key!s:>10}  accuracy {choice.accuracy[key]}  log-loss {choice.log_loss[key]:.3f}"
        + ("  <- chosen" if key == choice.chosen else "")
        for key in choice.accuracy
    ]
    return [f"{title}, judged on the same folds:", *rows, f"  {choice.reason}"]
