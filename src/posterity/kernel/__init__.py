"""Function space: the prior as a kernel over outputs, and the exact posterior of few examples."""

from posterity.kernel.choose import averaged, calibrate, choose
from posterity.kernel.jacobian import BlockFrame, Jacobian, jacobian, outputs_at
from posterity.kernel.kernels import Kernel, PerOutput, Shared, Strength
from posterity.kernel.latent import Latent, Link, centred, link, normal_draws, spread
from posterity.kernel.left_out import Calibration, LeftOut, downdate
from posterity.kernel.linearised import (
    Choice,
    FunctionPosterior,
    Linearised,
    Member,
)
from posterity.kernel.noise import Noise, choose_noise, residual_noise
from posterity.kernel.variational import Inference, Laplace, Variational

__all__ = [
    "BlockFrame",
    "Calibration",
    "Choice",
    "FunctionPosterior",
    "Inference",
    "Jacobian",
    "Kernel",
    "Laplace",
    "Latent",
    "LeftOut",
    "Linearised",
    "Link",
    "Member",
    "Noise",
    "PerOutput",
    "Shared",
    "Strength",
    "Variational",
    "averaged",
    "calibrate",
    "centred",
    "choose",
    "choose_noise",
    "downdate",
    "jacobian",
    "link",
    "normal_draws",
    "outputs_at",
    "residual_noise",
    "spread",
]
