"""What a fit went through, iteration by iteration, and when held-out answers say that it should end."""

import numpy as np

from salmon.geometry import Coordinates
from salmon.learning import Triplets, accuracy, log_loss
from salmon.noise import NoiseModel


class History:
    """A line an iteration: which start, which iteration of it, and the objective reached."""

    def __init__(self) -> None:
        self.lines: list[dict[str, float]] = []

    def record(self, coordinates: Coordinates, objective: float) -> None:
        """Note one iteration; the coordinates are not kept."""
        del coordinates
        self._note(objective)

    def _note(self, objective: float, **judged: float) -> None:
        last = self.lines[-1] if self.lines else {"start": 0, "iteration": 0, "objective": np.inf}
        # Within one descent the objective never rises: where it does, the next start has begun.
        new = objective > last["objective"]
        self.lines.append(
            {
                "start": last["start"] + new,
                "iteration": 1 if new else last["iteration"] + 1,
                "objective": objective,
                **judged,
            }
        )


class JudgedHistory(History):
    """A history that judges every iteration by held-out answers and remembers the likeliest coordinates."""

    def __init__(self, start: Coordinates, held_out: Triplets, noise: NoiseModel, patience: int) -> None:
        super().__init__()
        self.best = start
        self._best_loss = log_loss(start, held_out, noise=noise)
        self._held_out = held_out
        self._noise = noise
        self._patience = patience
        self._waited = 0

    def record(self, coordinates: Coordinates, objective: float) -> None:
        """Note one iteration with its held-out log-loss and accuracy."""
        loss = log_loss(coordinates, self._held_out, noise=self._noise)
        share = accuracy(coordinates, self._held_out)
        self._note(objective, held_out_log_loss=loss, held_out_accuracy=share)
        if loss < self._best_loss:
            self.best, self._best_loss, self._waited = coordinates.copy(), loss, 0
        else:
            self._waited += 1

    def exhausted(self) -> bool:
        """Whether the held-out log-loss has not fallen for as many iterations as patience allows."""
        return self._waited >= self._patience
