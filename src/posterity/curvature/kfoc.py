"""K-FOC: the Kronecker pair nearest to the Fisher information of each batch, batches joined by `nearest`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from posterity.algebra import Kronecker, KroneckerSum, Matrix, mixing_weights, nearest
from posterity.blocks import Block, Call
from posterity.blocks.base import gradients, positions, rows, tensors
from posterity.blocks.linear import gram, mirror, sum_dtype
from posterity.curvature.base import Accumulator, Estimator
from posterity.curvature.entries import Squares
from posterity.data.batches import Workers

BUDGET = 1 << 27
"""Entries (512 MB in float32) that a batch's gradients, or its Gram matrices, may take."""

TYPICAL_STEPS = 6
"""How many iterations the choice between ways of iterating reckons with."""


@dataclass(frozen=True)
class KFOC(Estimator):
    """The pair L ⊗ R nearest in Frobenius norm to Σ vec(G_n) vec(G_n)ᵀ over a batch (Schnaus et al. 2021).

    The power iteration R ← Σ G_nᵀ L G_n, L ← Σ G_n R G_nᵀ starts at KFAC's L and gets closer with every step, so the result
    is never further from the batch's Fisher information than KFAC's. (Later batches start where the one before ended, which is
    nearer.) It stops after `steps`, or when a step moves the factor by less than `tol` of its norm: 1e-3 moves the error by 1e-6.

    Batches are joined greedily: the pair of all batches so far and the next one become the nearest pair of their sum.
    """

    tol: float = 1e-3
    steps: int = 100

    def start(self, block: Block, dtype: torch.dtype) -> Accumulator:
        return _Pair(block, dtype, self) if block.layer.separable else Squares(block, dtype)


class _Pair(Accumulator):
    def __init__(self, block: Block, dtype: torch.dtype, choice: KFOC) -> None:
        super().__init__(block, dtype)
        self.choice = choice
        self.total: Kronecker | None = None
        self.rows: list[RowPair] = []
        self.waiting: list[list[Call]] = []
        self.start: Tensor | None = None
        """Where the next batch starts: batches of one set of data have factors near one another."""
        self.unit = 0.0

    def see_input(self, a: Tensor) -> None:
        if not self.unit:
            self.layer.input_moment(a.shape)  # refused by the layer where the factor would be too large

    def see_gradients(self, calls: list[Call], last: bool) -> None:
        # Several labels an example are several gradients of one batch: they are fitted together.
        if self.waiting or not last:
            self.waiting.append([Call(c.a, c.s) for c in calls])
            if not last:
                return
        passes, self.waiting = self.waiting or [calls], []
        # The unit of gradients is the largest of the first that are not all zero: fourth powers must fit into float32.
        self.unit = self.unit or max(float(c.s.abs().max()) for p in passes for c in p if c.s is not None)
        if not self.unit:
            return
        passes = [[Call(c.a, c.s / self.unit) for c in p if c.s is not None] for p in passes]
        pair = nearest_to_batch(self.block, passes, self.choice.tol, self.choice.steps, self.start)
        if isinstance(pair, Kronecker):
            self.start = _unit(pair.left)
            self.total = pair if self.total is None else nearest(KroneckerSum([self.total, pair]))
        else:
            self.rows.append(pair)
            if sum(len(p.right) for p in self.rows) >= self.layer.inp // 2:
                self._join()

    def _join(self) -> None:
        self.total = joined(self.total, self.rows)
        self.rows = []

    def state(self) -> dict[str, Any]:
        total = None if self.total is None else [self.total.left, self.total.right]
        pairs = [[pair.left, pair.right] for pair in self.rows]
        return {"unit": self.unit, "start": self.start, "total": total, "rows": pairs}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.unit, self.start = state["unit"], state["start"]
        self.total = None if state["total"] is None else Kronecker.unchecked(*state["total"])
        self.rows = [RowPair(*pair) for pair in state["rows"]]

    def result(self, workers: Workers) -> Matrix:
        if self.rows:
            self._join()
        out, inp = self.block.shape
        total = self.total or Kronecker.unchecked(torch.zeros(out, out), torch.zeros(inp, inp))
        # Gradients of one unit each: half of it to either side, so that neither leaves the range of single precision.
        factors = [x.to(sum_dtype(len(x), self.dtype)) * self.unit for x in (total.left, total.right)]
        for factor in factors:
            mirror(factor)
        if workers.size == 1:
            return _balanced(*factors).to(dtype=self.dtype)
        lefts, rights = (workers.gather(factor) for factor in factors)
        terms = [Kronecker.unchecked(left, right) for left, right in zip(lefts, rights, strict=True)]
        return nearest(KroneckerSum(terms)).to(dtype=self.dtype)


def _balanced(left: Tensor, right: Tensor) -> Kronecker:
    """The same pair with both factors of one norm, in place: what `nearest` makes of a single term."""
    norms = [float(torch.linalg.vector_norm(x, dtype=torch.float64)) for x in (left, right)]
    if not all(norms):
        return Kronecker.unchecked(left.zero_(), right.zero_())
    ratio = (norms[1] / norms[0]) ** 0.5
    return Kronecker.unchecked(left.mul_(ratio), right.div_(ratio))


@dataclass(frozen=True)
class RowPair:
    """(SᵀS) ⊗ (AᵀA), kept as the few rows it is made of."""

    left: Float[Tensor, "rows out"]
    right: Float[Tensor, "rows inp"]


def joined(total: Kronecker | None, pairs: list[RowPair]) -> Kronecker:
    """The nearest pair to the sum of what is there and of pairs in rows.

    Inner products between row pairs need no factor written out, and the mixture of all is one product: joining costs
    once per half as many rows as columns instead of once per batch.
    """
    sides = []
    for side in ("left", "right"):
        stacks: list[Tensor] = [getattr(p, side) for p in pairs]
        gram_matrix = [[(x @ y.T).square().sum().double() for y in stacks] for x in stacks]
        if total is not None:
            factor: Tensor = getattr(total, side)
            cross = [((x @ factor.to(x.dtype)) * x).sum().double() for x in stacks]
            own = torch.linalg.vector_norm(factor).double() ** 2
            gram_matrix = [[own, *cross], *([c, *row] for c, row in zip(cross, gram_matrix, strict=True))]
        sides.append((stacks, torch.stack([torch.stack(row) for row in gram_matrix])))
    (lefts, left_gram), (rights, right_gram) = sides
    c, d = mixing_weights(left_gram, right_gram)
    mixed = []
    for side, stacks, weights in (("left", lefts, c), ("right", rights, d)):
        old, new = (None, weights) if total is None else (weights[0], weights[1:])
        scaled = torch.cat([x * w.clamp_min(0).sqrt().to(x.dtype) for x, w in zip(stacks, new, strict=True)])
        product = gram(scaled)
        mixed.append(product if old is None else product.add_(getattr(total, side) * old.to(product.dtype)))
    return Kronecker.unchecked(*mixed)


def nearest_to_batch(
    block: Block, passes: list[list[Call]], tol: float, steps: int, start: Tensor | None = None
) -> Kronecker | RowPair:
    """The Kronecker pair nearest to the Fisher information of one batch, by whichever way of iterating takes least.

    `passes` are the calls of every backward pass: one for each label. Iterations begin at `start`, or at KFAC's L.
    """
    n, t = len(tensors(passes[0][0])[1]), positions(block, passes[0])
    out, inp = block.shape
    labels = len(passes)
    if labels > 1 and t == 1:
        return _one_row_each(block, passes, tol, steps)
    way = _cheapest(n * labels, t, out, inp)
    several = labels > 1 and way is not _in_the_span and n * labels * out * inp <= BUDGET
    if several and (g := _of_all_labels(block, passes)) is not None:
        left, right = _iterated(lambda: iter([g]), _first(block, passes) if start is None else start, tol, steps)
        return Kronecker.unchecked((left + left.T) / 2, (right + right.T) / 2)
    calls = passes[0] if labels == 1 else _joined(passes)
    if way is _in_the_span:
        pair = _in_the_span(*rows(block, calls), tol, steps)
        # Rows are the smaller form only while they are few.
        return pair if n * labels * t < inp // 2 else Kronecker.unchecked(gram(pair.left), gram(pair.right))
    left, right = (_over_pairs if way is _over_pairs else _over_gradients)(block, calls, tol, steps, start)
    return Kronecker.unchecked((left + left.T) / 2, (right + right.T) / 2)


def _cheapest(n: int, t: int, out: int, inp: int) -> Callable[..., object]:
    small, large = min(out, inp), max(out, inp)
    formed = n * t * out * inp
    costs: dict[Callable[..., object], float] = {
        _in_the_span: n**2 * t**2 * (out + inp) / 2 + TYPICAL_STEPS * 4 * n**2 * t**3,
        _over_gradients: formed + TYPICAL_STEPS * n * out * inp * (2 * out + 1.5 * inp),
        _over_pairs: formed + n**2 * small**2 * large / 2 + TYPICAL_STEPS * 2 * n**2 * small**3 + formed / t * large,
    }
    if 2 * (n * t) ** 2 > BUDGET:
        del costs[_in_the_span]
    if max(2 * (n * small) ** 2, n * out * inp) > BUDGET:
        del costs[_over_pairs]
    return min(costs, key=lambda way: costs[way])


def _one_row_each(block: Block, passes: list[list[Call]], tol: float, steps: int) -> Kronecker:
    """Many labels and one position: all gradients of an example are s aᵀ with the same a, so R needs a weight an example.

    L = Σ v_n Σ_c s_nc s_ncᵀ and R = Σ w_n a_n a_nᵀ: a step is two products with the rows of L's side, and one with the squared
    inner products of the inputs.
    """
    found = [rows(block, calls) for calls in passes]
    a, s = found[0][0].squeeze(1), torch.cat([x for _, x in found], 1)
    n, labels, out = s.shape
    flat, meeting = s.reshape(-1, out), gram(a.T).square_()

    def weights(left: Tensor) -> Tensor:
        return (flat @ left).mul_(flat).view(n, labels * out).sum(1)

    def step(left: Tensor) -> Tensor:
        v = meeting @ weights(left)
        return _unit(gram(flat, flat * v.repeat_interleave(labels)[:, None]))

    left = _settled(_unit(gram(flat)), step, tol, steps)
    right = gram(a, a * weights(left)[:, None])
    return Kronecker.unchecked((left + left.T) / 2, (right + right.T) / 2)


def _of_all_labels(block: Block, passes: list[list[Call]]) -> Float[Tensor, "n out inp"] | None:
    """The gradients of all labels by one product an example, where the layer can: its input is the same for all of them."""
    total: Tensor | None = None
    for same in zip(*(map(tensors, calls) for calls in passes), strict=True):
        s = block.layer.labels_joined([s for _, s in same])
        if s is None:
            return None
        g = block.layer.gradients(same[0][0], s)
        total = g if total is None else total + g
    return None if total is None else total.view(-1, *block.shape)


def _in_the_span(a: Float[Tensor, "n t inp"], s: Float[Tensor, "n t out"], tol: float, steps: int) -> RowPair:
    """Iterate on weights instead of factors: L = Σ S_nᵀ V_n S_n and R = Σ A_nᵀ W_n A_n with t×t weights V_n, W_n.

    All a step needs are inner products between rows, computed once: no gradient is ever formed. For a linear layer
    (t = 1) a step is two products with an n×n matrix.
    """
    inputs, outputs = _inner_products(a), _inner_products(s)
    v = torch.eye(a.shape[1], dtype=a.dtype, device=a.device).expand(len(a), -1, -1)  # L = Σ s sᵀ: KFAC's
    v = _settled(
        v / torch.linalg.vector_norm(v), lambda v: _unit(_through(inputs, _unit(_through(outputs, v)))), tol, steps
    )
    w = _through(outputs, v)
    norm = (w * v).sum().clamp_min(0).sqrt()  # ‖L‖, from the weights alone
    safe = norm.clamp_min(torch.finfo(norm.dtype).tiny)
    return RowPair(_weighted(s, v / safe), _weighted(a, w / safe))


def _inner_products(x: Float[Tensor, "n t d"]) -> Float[Tensor, "n t n t"]:
    n, t, _ = x.shape
    return gram(x.flatten(0, 1).T).view(n, t, n, t)


def _through(products: Float[Tensor, "n t n t"], v: Float[Tensor, "n t t"]) -> Float[Tensor, "n t t"]:
    """W_n = Σ_m C_nm V_m C_nmᵀ, with C_nm the inner products between the rows of n and m."""
    n, t = v.shape[:2]
    if t == 1:
        return (products.view(n, n).square() @ v.view(n, 1)).view(n, 1, 1)
    # C_nm = C_mnᵀ, so both products run over rows that lie one behind the other: no copy of the n t × n t array.
    rows = products.view(n, t, n * t)
    half = (v @ rows).view(n * t, n, t)
    return rows @ half.transpose(0, 1)


def _weighted(x: Float[Tensor, "n t d"], weights: Float[Tensor, "n t t"]) -> Float[Tensor, "nt d"]:
    """Rows y with Σ y yᵀ = Σ_n X_nᵀ W_n X_n: the (semidefinite) weights enter by their square roots."""
    if x.shape[1] == 1:
        return x.squeeze(1) * weights.squeeze(1).clamp_min(0).sqrt()
    # In float64: weights that span twenty orders of magnitude make the float32 algorithm fail to converge.
    values, vectors = torch.linalg.eigh((weights + weights.mT).double() / 2)
    return ((vectors * values.clamp_min(0).sqrt()[:, None, :]).mT.to(x.dtype) @ x).flatten(0, 1)


def _over_gradients(
    block: Block, calls: list[Call], tol: float, steps: int, start: Tensor | None = None
) -> tuple[Float[Tensor, "out out"], Float[Tensor, "inp inp"]]:
    """Iterate on the factors with every example's gradient at hand, or made again for each step where they do not fit."""
    pieces: Callable[[], Iterator[Tensor]] = partial(gradients, block, calls)
    if len(tensors(calls[0])[0]) * block.layer.out * block.layer.inp <= BUDGET:
        pieces = list(pieces()).__iter__
    return _iterated(pieces, _first(block, [calls]) if start is None else start, tol, steps)


def _iterated(
    pieces: Callable[[], Iterator[Tensor]], left: Float[Tensor, "out out"], tol: float, steps: int
) -> tuple[Float[Tensor, "out out"], Float[Tensor, "inp inp"]]:
    def step(left: Tensor) -> Tensor:
        right = _unit(reduce(add, (_right_step(g, left) for g in pieces())))
        return _unit(reduce(add, (_left_step(g, right) for g in pieces())))

    left = _settled(left, step, tol, steps)
    return left, reduce(add, (_right_step(g, left) for g in pieces()))


def _over_pairs(
    block: Block, calls: list[Call], tol: float, steps: int, start: Tensor | None = None
) -> tuple[Float[Tensor, "out out"], Float[Tensor, "inp inp"]]:
    """Iterate on the smaller factor alone: L ← Σ C_nm L C_nmᵀ with C_nm = G_n G_mᵀ, products of pairs made once.

    Few examples with many positions: the larger factor, which costs most, is formed once, at the end.
    """
    g = torch.cat(list(gradients(block, calls)))
    n, out, inp = g.shape
    factor = _first(block, [calls]) if start is None else start
    wide = out <= inp
    if not wide:
        factor = _unit(_right_step(g, factor))
    small = min(out, inp)
    products = gram((g if wide else g.mT).reshape(n * small, -1).T)
    # [row, (example, example, row')]: an iteration is two products of long rows.
    flat = products.view(n, small, n, small).transpose(0, 1).reshape(small, -1)
    factor = _settled(factor, lambda x: _unit((flat.view(-1, small) @ x).view(small, -1) @ flat.T), tol, steps)
    return (factor, _right_step(g, factor)) if wide else (_left_step(g, factor), factor)


def _settled(x: Tensor, step: Callable[[Tensor], Tensor], tol: float, steps: int) -> Tensor:
    """x after so many steps, or after the first that moves it by less than `tol`."""
    for _ in range(steps):
        before, x = x, step(x)
        if torch.linalg.vector_norm(x - before) < tol:
            break
    return x


def _first(block: Block, passes: list[list[Call]]) -> Float[Tensor, "out out"]:
    """Where iterations start: at KFAC's L."""
    start = block.layer.output_moment()
    for s in (call.s for calls in passes for call in calls if call.s is not None):
        start.add(s)
    return _unit(start.matrix().to(s.dtype))


def _right_step(g: Float[Tensor, "n out inp"], left: Float[Tensor, "out out"]) -> Float[Tensor, "inp inp"]:
    return gram(g.flatten(0, 1), (left @ g).flatten(0, 1))


def _left_step(g: Float[Tensor, "n out inp"], right: Float[Tensor, "inp inp"]) -> Float[Tensor, "out out"]:
    return ((g.flatten(0, 1) @ right).view_as(g) @ g.mT).sum(0)


def _unit(x: Tensor) -> Tensor:
    return x / torch.linalg.vector_norm(x).clamp_min(torch.finfo(x.dtype).tiny)


def _joined(passes: list[list[Call]]) -> list[Call]:
    """The calls of several passes as those of one, over as many times the examples."""
    together = zip(*(map(tensors, calls) for calls in passes), strict=True)
    return [Call(torch.cat(a), torch.cat(s)) for a, s in (zip(*same, strict=True) for same in together)]
