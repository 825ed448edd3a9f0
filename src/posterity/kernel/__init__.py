"""Function space: the prior as a kernel over outputs, and the exact posterior of few examples."""

from typing import Any

from posterity.deprecated import renamed
from posterity.kernel.choose import averaged, calibrate, choose
from posterity.kernel.jacobian import BlockFrame, Jacobian, jacobian, outputs_at
from posterity.kernel.kernels import Kernel, OutputKernel, SharedKernel, Strength
from posterity.kernel.latent import Latent, Link, centred, link, normal_draws, spread
from posterity.kernel.left_out import Calibration, LeaveOneOut, downdate
from posterity.kernel.linearised import (
    FunctionPosterior,
    LinearisedNetwork,
    StrengthChoice,
    StrengthMember,
)
from posterity.kernel.noise import Noise, choose_noise, residual_noise
from posterity.kernel.variational import Inference, Laplace, VariationalGaussian

__all__ = [
    "BlockFrame",
    "Calibration",
    "FunctionPosterior",
    "Inference",
    "Jacobian",
    "Kernel",
    "Laplace",
    "Latent",
    "LeaveOneOut",
    "LinearisedNetwork",
    "Link",
    "Noise",
    "OutputKernel",
    "SharedKernel",
    "Strength",
    "StrengthChoice",
    "StrengthMember",
    "VariationalGaussian",
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


def __getattr__(name: str) -> Any:
    return renamed("kernel", name)
