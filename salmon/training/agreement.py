"""How a step ends: gradients meet and one step is taken by all, or each steps alone and parameters meet later.

With what is exchanged travel a few numbers: the summed loss, the norms that monitors need, and whether somebody wants
the stretch to end. Bytes are those that all ranks together hand over.
"""

from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from salmon.distributed.averaging import AveragingState, Crossbow
from salmon.distributed.replicas import Replicas
from salmon.distributed.state import Job, Row, TrainingState

if TYPE_CHECKING:
    from salmon.distributed.steps import Ranks

# Summed loss, examples, squared norm of a rank's gradient, wish to regroup, wish to finish.
_NOTES = 5


@dataclass(frozen=True)
class Agreed:
    """What a step came to: `columns` for its row, `shared` those figures that every rank knows alike."""

    loss: float
    bytes_sent: int
    synchronised: int
    columns: Row
    shared: Row = field(default_factory=dict)
    local_norm2: float = nan
    norm2: float = nan


class Agreement:
    """What the three ways have in common: the notes that travel along, and the wishes in them."""

    def __init__(self, job: Job, replicas: Replicas, ranks: "Ranks", state: TrainingState) -> None:
        self._job, self._replicas, self._ranks = job, replicas, ranks
        self.state: AveragingState = state.averaging
        self.regroup = False
        self.finish = False
        self._wish = False
        self._readers = {monitor.every for monitor in job.monitors if monitor.needs_gradients}

    def ask_to_finish(self) -> None:
        """Let the run end: at once where all ranks are here, else with the next exchange."""
        self._wish = True
        self.finish = self.finish or len(self._ranks.local) == self._ranks.size

    def reach(
        self,
        step: int,
        sums: torch.Tensor,
        gradients: torch.Tensor,
        counts: torch.Tensor,
        batch_size: int,
        factor: float,
    ) -> Agreed:
        """End a step, from the summed losses (r,), summed gradients (r, P) and examples (r,) of the replicas here."""
        raise NotImplementedError

    def centre(self) -> torch.Tensor:
        """(P,) the parameters that stand for all replicas here."""
        return self._replicas.weights.detach().mean(dim=0)

    def arrays(self) -> dict[str, NDArray[Any]]:
        """What has to be kept besides the replicas."""
        return {}

    def _notes(self, sums: torch.Tensor, counts: torch.Tensor, gradients: torch.Tensor | None = None) -> torch.Tensor:
        """(ranks here, 5) the numbers that travel with each rank's vector; norms where summed gradients (r, P) are given."""
        ranks = len(self._ranks.local)
        losses = sums.view(ranks, -1).sum(dim=1).tolist()
        examples = counts.view(ranks, -1).sum(dim=1).tolist()
        norms2 = [0.0] * ranks if gradients is None else [_norm2(each) for each in gradients]
        # Plain numbers: for so few of them every call of torch would cost more than all of this.
        rows = [
            [a, b, norm2 / max(1.0, b) ** 2, 0.0, 0.0] for a, b, norm2 in zip(losses, examples, norms2, strict=True)
        ]
        rows[0][3:] = [float(self._ranks.asked_to_regroup()), float(self._wish)]
        return torch.tensor(rows, dtype=torch.float32)

    def _exchange(self, vectors: torch.Tensor, notes: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, int]:
        """(sum of the vectors (P,), sum of the notes, bytes of all ranks)."""
        payload = torch.cat([vectors, notes], dim=1)
        total = self._ranks.reduce(payload)
        self._heed(total[-_NOTES:].tolist())
        return total[:-_NOTES], total[-_NOTES:], 4 * payload.shape[1] * self._ranks.size

    def _heed(self, notes: list[float]) -> None:
        self.regroup, self.finish = notes[3] > 0, notes[4] > 0


class GradientsMeet(Agreement):
    """Full synchronisation: the gradient of the whole batch, exact or compressed, and one step that all take alike."""

    def reach(
        self,
        step: int,
        sums: torch.Tensor,
        gradients: torch.Tensor,
        counts: torch.Tensor,
        batch_size: int,
        factor: float,
    ) -> Agreed:
        """See `Agreement`."""
        measured = any(step % every == 0 for every in self._readers)
        notes = self._notes(sums, counts, gradients if measured else None)
        vectors = gradients / batch_size
        if self._job.compression is None:
            gradient, heard, sent = self._exchange(vectors, notes)
        else:
            gradient, heard, sent = self._exchange_coded(step, vectors, notes)
        loss = float(heard[0]) / batch_size
        norm2 = _norm2(gradient)
        self._replicas.step(gradient[None], factor)
        columns: Row = {"loss": loss, "gradient_norm2": norm2}
        local_norm2 = float(heard[2]) / self._ranks.size if measured else nan
        return Agreed(loss, sent, 1, columns, local_norm2=local_norm2, norm2=norm2)

    def _exchange_coded(
        self, step: int, vectors: torch.Tensor, notes: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, int]:
        compression = self._job.compression
        assert compression is not None  # noqa: S101 - only called where there is one
        shapes, head = self._replicas.shapes, 4 * _NOTES
        payloads = [
            note.numpy().tobytes()
            + compression.compress(vector.numpy(), shapes, np.random.default_rng([self._job.seed, step, rank]))
            for rank, vector, note in zip(self._ranks.local, vectors, notes, strict=True)
        ]
        lengths: list[int] = []

        def expand(payload: bytes) -> NDArray[np.float32]:
            lengths.append(len(payload))
            heard = np.frombuffer(payload[:head], dtype=np.float32)
            return np.concatenate([compression.expand(payload[head:], shapes), heard])

        total = torch.from_numpy(self._ranks.reduce_coded(payloads, expand))
        self._heed(total[-_NOTES:].tolist())
        return total[:-_NOTES], total[-_NOTES:], sum(lengths)


class ParametersMeet(Agreement):
    """Each replica steps alone; where the method says so all take the mean of their parameters."""

    def __init__(self, job: Job, replicas: Replicas, ranks: "Ranks", state: TrainingState) -> None:
        super().__init__(job, replicas, ranks, state)
        # Losses and examples since replicas last agreed: the figures that all ranks know alike.
        self._sums = torch.zeros(len(replicas))
        self._counts = torch.zeros(len(replicas))

    def reach(
        self,
        step: int,
        sums: torch.Tensor,
        gradients: torch.Tensor,
        counts: torch.Tensor,
        batch_size: int,
        factor: float,
    ) -> Agreed:
        """See `Agreement`."""
        del batch_size
        self._replicas.step(gradients / counts.clamp(min=1)[:, None], factor)
        self._sums += sums
        self._counts += counts
        loss = float(sums.sum() / counts.sum().clamp(min=1))
        self.state, due = self._job.averaging.due(self.state, step)
        columns: Row = {"loss": loss, "period": self.state.period}
        if not due:
            return Agreed(loss, 0, 0, columns)
        weights = self._replicas.weights.detach()
        total, heard, sent = self._exchange(weights, self._notes(self._sums, self._counts))
        mean = total / self._ranks.size
        drift = ((weights - mean) ** 2).sum(dim=1, keepdim=True)
        variance = float(self._ranks.reduce(drift)[0]) / self._ranks.size
        with torch.no_grad():
            self._replicas.weights.copy_(mean.expand_as(weights))
        self.state = self._job.averaging.learn(self.state, step, variance, self._replicas.rate * factor)
        self._sums.zero_()
        self._counts.zero_()
        columns |= {"replica_variance": variance, "period": self.state.period}
        # The variance is one more number that travels.
        shared: Row = {"loss": float(heard[0] / heard[1].clamp(min=1))}
        return Agreed(loss, sent + 4 * self._ranks.size, 1, columns, shared)


class CentreCorrects(Agreement):
    """Crossbow: independent replicas, pulled towards a central average that they pull in turn."""

    def __init__(self, job: Job, replicas: Replicas, ranks: "Ranks", state: TrainingState) -> None:
        super().__init__(job, replicas, ranks, state)
        kept = state.arrays.get("centre")
        mean = replicas.weights.detach().mean(dim=0)
        self._centre = mean.clone() if kept is None else torch.from_numpy(kept[0].copy())
        self._before = self._centre.clone() if kept is None else torch.from_numpy(kept[1].copy())

    def reach(
        self,
        step: int,
        sums: torch.Tensor,
        gradients: torch.Tensor,
        counts: torch.Tensor,
        batch_size: int,
        factor: float,
    ) -> Agreed:
        """See `Agreement`."""
        del step, batch_size
        method = self._job.averaging
        assert isinstance(method, Crossbow)  # noqa: S101 - `agreement_for` chose by it
        every = method.replicas
        corrections = method.strength(every * self._ranks.size) * (self._replicas.weights.detach() - self._centre)
        own = corrections.view(len(self._ranks.local), every, -1).sum(dim=1)
        total, heard, sent = self._exchange(own, self._notes(sums, counts))
        self._replicas.step(gradients / counts.clamp(min=1)[:, None], factor)
        with torch.no_grad():
            self._replicas.weights.sub_(corrections)
        moved = self._centre + total + method.momentum * (self._centre - self._before)
        self._before, self._centre = self._centre, moved
        loss = float(heard[0] / heard[1].clamp(min=1))
        return Agreed(loss, sent, 1, {"loss": loss})

    def centre(self) -> torch.Tensor:
        """The central average."""
        return self._centre

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The central average and the one before it."""
        return {"centre": torch.stack([self._centre, self._before]).numpy().copy()}


def _norm2(vector: torch.Tensor) -> float:
    """Its squared norm. All by this one function: in a step of half a millisecond code that was not just used costs more than the sum."""
    return float(vector @ vector)


def agreement_for(job: Job, replicas: Replicas, ranks: "Ranks", state: TrainingState) -> Agreement:
    """The way in which a job's replicas agree."""
    # A lone replica has no others to be corrected towards: its centre would only lag behind it.
    alone = isinstance(job.averaging, Crossbow) and job.averaging.replicas * ranks.size == 1
    if not job.averaging.differ or alone:
        return GradientsMeet(job, replicas, ranks, state)
    if isinstance(job.averaging, Crossbow):
        return CentreCorrects(job, replicas, ranks, state)
    return ParametersMeet(job, replicas, ranks, state)
