"""Which noise model an estimator means by its name and its lapse."""

from salmon.errors import SalmonError
from salmon.noise import NoiseModel, PowerTSTE, noise_model

#: What `noise=None` means: it predicted held-out answers best wherever people or simulated people were asked.
RECOMMENDED_NOISE = PowerTSTE(k=0.85, lapse=0.07)
#: The lapse of a noise model that is given by its name alone.
DEFAULT_LAPSE = 0.05


def named_noise(noise: str | NoiseModel | None, lapse: float | str | None) -> NoiseModel:
    """The noise model with its lapse; where "held-out" answers are to choose that, the model they begin with."""
    if isinstance(lapse, str) and lapse != "held-out":
        raise SalmonError(f"There is no lapse {lapse!r}.", hint='Give a number from 0 to .5, "held-out" or None.')
    share = None if isinstance(lapse, str) else lapse
    if noise is None:
        return noise_model(RECOMMENDED_NOISE, lapse=share)
    if isinstance(noise, str) and share is None:
        share = DEFAULT_LAPSE
    return noise_model(noise, lapse=share)
