"""Noise models: the probability of the winner given two squared distances, one model a module.

`NOISE_MODELS` lists the names that a spec may use; `noise_model` returns the model of a name.
"""

from dataclasses import fields, replace

from salmon.errors import SalmonError
from salmon.noise.ckl import CKL
from salmon.noise.gnmds import GNMDS
from salmon.noise.logistic import Logistic
from salmon.noise.model import NoiseModel, Reals, sigmoid
from salmon.noise.power_tste import PowerTSTE
from salmon.noise.soe import SOE
from salmon.noise.ste import STE
from salmon.noise.tste import TSTE

#: Name -> model. `Logistic` is an old name: STE with a learned slope.
NOISE_MODELS: dict[str, type[NoiseModel]] = {
    "TSTE": TSTE,
    "STE": STE,
    "CKL": CKL,
    "GNMDS": GNMDS,
    "SOE": SOE,
    "PowerTSTE": PowerTSTE,
    "Logistic": Logistic,
}

__all__ = [
    "CKL",
    "GNMDS",
    "NOISE_MODELS",
    "SOE",
    "STE",
    "TSTE",
    "Logistic",
    "NoiseModel",
    "PowerTSTE",
    "Reals",
    "noise_model",
    "sigmoid",
]


def noise_model(noise: str | NoiseModel, *, lapse: float | None = None, **parameters: float) -> NoiseModel:
    """Return the noise model of this name with these parameters; case, hyphens and underscores do not matter.

    A model passes through, with `lapse` and `parameters` replaced where they are given.
    """
    if lapse is not None:
        parameters["lapse"] = lapse
    if isinstance(noise, NoiseModel):
        _refuse_unknown(type(noise), parameters)
        return replace(noise, **parameters)
    plain = {name.lower(): model for name, model in NOISE_MODELS.items()}
    model = plain.get(noise.lower().replace("-", "").replace("_", ""))
    if model is None:
        raise SalmonError(f"There is no noise model {noise!r}.", hint=f"Use one of {', '.join(NOISE_MODELS)}.")
    _refuse_unknown(model, parameters)
    return model(**parameters)


def _refuse_unknown(model: type[NoiseModel], parameters: dict[str, float]) -> None:
    known = [field.name for field in fields(model)]
    unknown = sorted(set(parameters) - set(known))
    if unknown:
        raise SalmonError(
            f"The noise model {model.__name__} has no parameter {', '.join(unknown)}.",
            hint=f"It takes {', '.join(known)}.",
        )
