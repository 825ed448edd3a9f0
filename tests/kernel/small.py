"""Small networks with learned priors, in float64, and the dense posterior that inference in function space must equal."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import posterity as pt
from posterity.algebra import FlooredMatrix, as_floored, scaled_identity
from posterity.blocks import find_blocks, read_blocks
from posterity.curvature import Likelihood
from posterity.data.batches import Batch
from posterity.kernel import BlockFrame, Jacobian, LinearisedNetwork, OutputKernel, SharedKernel, jacobian


class Convolutional(nn.Module):
    """A convolution, a norm layer and a linear head."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 2, 3), nn.GroupNorm(1, 2), nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.conv(x))).flatten(1))


class Tokens(nn.Module):
    """A head at every token, of which the network returns the last one's outputs, or output k at token k."""

    def __init__(self, outputs: int, last: bool) -> None:
        super().__init__()
        self.last, self.body, self.head = last, nn.Linear(4, 3), nn.Linear(3, outputs)

    def forward(self, x: Tensor) -> Tensor:
        found = self.head(torch.tanh(self.body(x)).cumsum(1))
        return found[:, -1] if self.last else found[:, : found.shape[-1]].diagonal(dim1=1, dim2=2)


def dense_network(outputs: int) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, outputs))


def some_inputs(kind: str, n: int) -> Tensor:
    return torch.randn(n, *{"dense": (4,), "convolutional": (1, 4, 4)}.get(kind, (5, 4)))


def network(kind: str, outputs: int) -> nn.Module:
    match kind:
        case "dense":
            return dense_network(outputs).double()
        case "convolutional":
            return Convolutional(outputs).double()
    return Tokens(outputs, kind == "last token").double()


def batches_of(x: Tensor) -> list[Batch]:
    return [Batch((part,), {}, torch.zeros(len(part), dtype=torch.int64)) for part in x.split(3)]


class Problem:
    """A linearised network with a learned prior, and the same in plain dense matrices."""

    def __init__(self, kind: str, outputs: int, n: int, likelihood: Likelihood, seed: int = 0, shared: bool = False):
        torch.manual_seed(seed)
        with torch.no_grad():
            self.model = network(kind, outputs)
        x = some_inputs(kind, n).double()
        self.x, self.likelihood = x, likelihood
        if isinstance(likelihood, pt.Categorical):
            self.targets = torch.randint(outputs, (n,))
        else:
            self.targets = torch.randn(n, outputs, dtype=torch.float64)
            if isinstance(likelihood, pt.Bernoulli):
                self.targets = (self.targets > 0).double()
        self.blocks = find_blocks(self.model)
        self.point = read_blocks(self.model, self.blocks)
        source = some_inputs(kind, 30).double()
        labels = torch.randint(outputs, (30,))
        curvature = pt.estimate(self.model, (source, labels), pt.EKFAC(), progress=False)
        self.precision = {name: as_floored(curvature[name]).adjusted(0.3, 0.7) for name in self.blocks}
        self.head = list(self.blocks)[-1]
        if shared:
            zero = scaled_identity(0.0, self.blocks[self.head].shape)
            self.precision[self.head] = FlooredMatrix(zero, 1.0, 0.5)
        self.frames = {name: BlockFrame.of(matrix) for name, matrix in self.precision.items()}
        self.mean = {name: matrix + 0.1 * torch.randn_like(matrix) for name, matrix in self.point.items()}
        shift = {name: self.frames[name].turned(self.mean[name] - self.point[name]) for name in self.blocks}
        kernel = SharedKernel(self.frames, self.head) if shared else OutputKernel(self.frames)
        self.linearised = LinearisedNetwork(
            kernel, self.jacobian(x), self.targets, likelihood, outputs, None if shared else shift
        )

    def jacobian(self, x: Tensor) -> Jacobian:
        return jacobian(self.model, self.blocks, self.point, self.frames, batches_of(x))

    def flat(self, matrices: dict[str, Tensor]) -> Tensor:
        return torch.cat([matrices[name].flatten() for name in self.blocks])

    def dense_jacobian(self, x: Tensor) -> Tensor:
        """[n, outputs, parameters], by automatic differentiation of every output."""
        names = {name: dict(block.parameters) for name, block in self.blocks.items()}
        parameters = dict(self.model.named_parameters())
        rows = []
        for example in x:
            out = self.model(example[None])[0]
            for k in range(len(out)):
                grads = torch.autograd.grad(out[k], list(parameters.values()), retain_graph=True)
                by_name = dict(zip(parameters, grads, strict=True))
                parts = [
                    self.blocks[name].layer.read({role: by_name[full] for role, full in roles.items()})
                    for name, roles in names.items()
                ]
                rows.append(torch.cat([part.flatten() for part in parts]))
        return torch.stack(rows).view(len(x), -1, rows[0].numel()).detach()

    def dense_precision(self) -> Tensor:
        return torch.block_diag(*(self.precision[name].dense().double() for name in self.blocks))

    def outputs(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.model(x)
