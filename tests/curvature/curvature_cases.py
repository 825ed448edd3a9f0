"""Small networks of every kind the estimators must handle, and the Fisher information of their blocks by brute force.

The oracle shares no code with the package: Jacobians by `torch.func`, matrices assembled by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor, nn

from posterity.algebra import Matrix
from posterity.curvature import Bernoulli, Categorical, GaussianNoise, Likelihood

EXAMPLES = 7


class Flat(nn.Module):
    """A body whose features are flattened before a linear head."""

    def __init__(self, body: nn.Module, features: int, outputs: int = 3) -> None:
        super().__init__()
        self.body, self.head = body, nn.Linear(features, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1))


class Twice(nn.Module):
    """One linear layer applied two times: shared weights."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.head = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.shared(torch.tanh(self.shared(x)))))


class TwiceConvolved(nn.Module):
    """One convolution applied two times, on inputs of two sizes."""

    def __init__(self) -> None:
        super().__init__()
        self.shared, self.head = nn.Conv2d(2, 2, 2), nn.Linear(2 * 4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.shared(torch.tanh(self.shared(x)))).flatten(1))


class Encoder(nn.Module):
    """A transformer encoder that averages over time."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(4, 2, 6, activation="gelu", batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.layer(x).mean(1))


class Tagger(nn.Module):
    """A label for every token: the outputs have positions."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.mix, self.head = nn.Embedding(6, 4), nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.mix(self.words(x)))
        return self.head(h + h.mean(1, keepdim=True))


class Pixels(nn.Sequential):
    """A label for every pixel, the classes in the second dimension."""

    def __init__(self) -> None:
        super().__init__(nn.Conv2d(2, 3, 2), nn.Tanh(), nn.Conv2d(3, 4, 1))


def _mlp(outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))


def _conv() -> nn.Module:
    return Flat(nn.Sequential(nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 4, 2, stride=2)), 16)


def _norms() -> nn.Module:
    body = nn.Sequential(nn.Conv2d(2, 3, 2, bias=False), nn.BatchNorm2d(3), nn.Tanh(), nn.GroupNorm(1, 3))
    return Flat(nn.Sequential(body, nn.Flatten(), nn.Linear(27, 4), nn.LayerNorm(4), nn.Tanh()), 4)


BUILDERS = {
    "mlp": (_mlp, (4,)),
    "conv": (_conv, (2, 4, 4)),
    "shared": (Twice, (4,)),
    "shared conv": (TwiceConvolved, (2, 4, 4)),
    "norms": (_norms, (2, 4, 4)),
    "encoder": (Encoder, (3, 4)),
    "tagger": (Tagger, (3,)),
    "pixels": (Pixels, (2, 3, 3)),
    "one output": (lambda: _mlp(1), (4,)),
}
FLAT = ["mlp", "conv", "shared", "shared conv", "norms", "encoder"]
"""Networks with one vector of outputs an example."""


@dataclass(frozen=True, eq=False)
class Case:
    model: nn.Module
    x: Tensor
    outputs: Tensor


def network(name: str, seed: int = 0) -> nn.Module:
    """In float64, weights and norm statistics away from where they start."""
    build, _ = BUILDERS[name]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = build().double()
        for p in model.parameters():
            p.data += 0.3 * torch.randn_like(p)
        for key, buffer in model.named_buffers():
            if key.endswith(("running_mean", "running_var")):
                buffer.copy_(torch.rand_like(buffer) + 0.5)
    return model


def inputs(name: str, n: int = EXAMPLES, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 100)
    shape = (n, *BUILDERS[name][1])
    if name == "tagger":
        return torch.randint(0, 6, shape, generator=generator)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


@cache
def case(name: str, seed: int = 0, n: int = EXAMPLES) -> Case:
    model, x = network(name, seed), inputs(name, n, seed)
    with torch.no_grad():
        outputs = model.eval()(x)
    return Case(model.train(), x, outputs)


def targets(likelihood: Likelihood, outputs: Tensor, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed + 200)
    match likelihood:
        case Categorical():
            classes = outputs.shape[1] if outputs.ndim == 4 else outputs.shape[-1]
            shape = (*outputs.shape[:1], *outputs.shape[2:]) if outputs.ndim == 4 else outputs.shape[:-1]
            return torch.randint(0, classes, shape, generator=generator)
        case Bernoulli():
            return torch.randint(0, 2, outputs.shape, generator=generator).to(outputs.dtype)
    return torch.randn(outputs.shape, generator=generator, dtype=outputs.dtype)


def data(name: str, likelihood: Likelihood | None = None, seed: int = 0, n: int = EXAMPLES) -> tuple[Tensor, Tensor]:
    it = case(name, seed, n)
    return it.x, targets(likelihood or Categorical(), it.outputs, seed)


def block_parts(model: nn.Module) -> dict[str, dict[str, str]]:
    """Block names with the parameters that make their columns, written out here once more by hand."""
    parts: dict[str, dict[str, str]] = {}
    for full, _ in model.named_parameters():
        module, _, role = full.rpartition(".")
        if role.startswith("in_proj_"):
            module, role = f"{module}.in_proj", role.removeprefix("in_proj_")
        parts.setdefault(module, {})[role] = full
    return parts


def _columns(module: nn.Module | None, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Jacobians [..., parameter's shape] of weight and bias as one [..., out, inp] Jacobian. One leading dimension."""
    if isinstance(module, nn.Embedding):
        return weight.mT
    if weight.ndim == 2:  # norm layers: a vector of scales
        columns = [weight] if bias is None else [weight, bias]
        return torch.stack(columns, -1)
    flat = weight.flatten(2)
    return flat if bias is None else torch.cat((flat, bias[..., None]), 2)


@cache
def jacobians(name: str, seed: int = 0, n: int = EXAMPLES) -> dict[str, Tensor]:
    """d outputs / d vec(block) of each example: [n, outputs, out·inp] for every block."""
    it = case(name, seed, n)
    it.model.eval()
    modules = dict(it.model.named_modules())
    parameters = {k: p.detach() for k, p in it.model.named_parameters()}
    found: dict[str, list[Tensor]] = {}
    for i in range(n):

        def run(p: dict[str, Tensor], i: int = i) -> Tensor:
            return torch.func.functional_call(it.model, p, (it.x[i : i + 1],)).flatten()

        jacobian = torch.func.jacrev(run)(parameters)
        for block, roles in block_parts(it.model).items():
            bias = jacobian[roles["bias"]] if "bias" in roles else None
            matrix = _columns(modules.get(block), jacobian[roles["weight"]], bias)
            found.setdefault(block, []).append(matrix.flatten(1))
    it.model.train()
    return {block: torch.stack(parts) for block, parts in found.items()}


def output_fisher(likelihood: Likelihood, outputs: Tensor) -> Tensor:
    """The Fisher information of each example's flattened outputs, from the textbook. Categorical: one vector each."""
    flat = outputs.flatten(1)
    match likelihood:
        case Categorical():
            assert outputs.ndim == 2
            p = outputs.softmax(-1)
            return torch.diag_embed(p) - p[:, :, None] * p[:, None, :]
        case Bernoulli():
            p = flat.sigmoid()
            return torch.diag_embed(p * (1 - p))
        case GaussianNoise():
            return likelihood.precision * torch.eye(flat.shape[1], dtype=flat.dtype).expand(len(flat), -1, -1)
    raise AssertionError(likelihood)


def by_autograd(likelihood: Likelihood, outputs: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """Summed NLL from torch's own distributions, and its gradient by the outputs."""
    outputs = outputs.detach().requires_grad_()
    match likelihood:
        case Categorical():
            logits = outputs.movedim(1, -1) if outputs.ndim == 4 else outputs
            kept = wanted != -100
            distribution = torch.distributions.Categorical(logits=logits[kept])
            nll = -distribution.log_prob(wanted[kept]).sum()
        case Bernoulli():
            nll = -torch.distributions.Bernoulli(logits=outputs).log_prob(wanted).sum()
        case GaussianNoise():
            nll = -torch.distributions.Normal(outputs, likelihood.precision**-0.5).log_prob(wanted).sum()
        case _:
            raise AssertionError(likelihood)
    return nll.detach(), torch.autograd.grad(nll, outputs)[0]


def fisher(name: str, likelihood: Likelihood, seed: int = 0, n: int = EXAMPLES) -> dict[str, Tensor]:
    """Σ_n Jᵀ F J for every block: the true Fisher information, dense."""
    middle = output_fisher(likelihood, case(name, seed, n).outputs)
    return {k: torch.einsum("nkp,nkl,nlq->pq", j, middle, j) for k, j in jacobians(name, seed, n).items()}


def empirical_gradients(name: str, likelihood: Likelihood, wanted: Tensor, seed: int = 0) -> dict[str, Tensor]:
    """The gradient of each example's NLL at its data label, [n, out·inp] for every block."""
    it = case(name, seed)
    _, residual = by_autograd(likelihood, it.outputs, wanted)
    return {k: torch.einsum("nkp,nk->np", j, residual.flatten(1)) for k, j in jacobians(name, seed).items()}


def distance(a: Tensor | Matrix, b: Tensor | Matrix) -> float:
    """Relative Frobenius distance of a from b."""
    a, b = (x.dense() if isinstance(x, Matrix) else x for x in (a, b))
    return float(torch.linalg.norm(a - b) / torch.linalg.norm(b))


def separable(matrices: dict[str, Tensor], model: nn.Module) -> list[str]:
    """Blocks that a Kronecker pair describes: all but the norm layers'."""
    norms = (nn.BatchNorm2d, nn.LayerNorm, nn.GroupNorm)
    modules = dict(model.named_modules())
    return [k for k in matrices if not isinstance(modules.get(k), norms)]
