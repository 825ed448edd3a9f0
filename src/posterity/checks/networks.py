"""What a network must be before anything can be learned about its weights."""

from __future__ import annotations

from torch import Tensor, nn

from posterity.errors import UnsupportedNetwork


def check_network(model: object, *, classes: bool = False) -> None:
    """Refuse a network that nothing can be learned about, or whose outputs are not what the likelihood takes.

    Args:
        model: what was given as a network.
        classes: whether its outputs should be logits of classes.
    Raises:
        UnsupportedNetwork: with what to give instead.
    """
    if isinstance(model, type) and issubclass(model, nn.Module):
        raise UnsupportedNetwork(
            f"the network is the class {model.__name__}: write {model.__name__}(...), a value of it."
        )
    if not isinstance(model, nn.Module):
        raise UnsupportedNetwork(f"the network is a {type(model).__name__}: give a torch.nn.Module.")
    if isinstance(model, nn.DataParallel):
        raise UnsupportedNetwork(
            "the network is wrapped in DataParallel: give network.module; torchrun uses several devices instead."
        )
    for name, module in model.named_modules():
        if ".quantized" in type(module).__module__:
            raise UnsupportedNetwork(
                f'layer "{name}" is quantised ({type(module).__name__}): its weights have no gradient. Make the posterior '
                "with the network as it was before it was quantised."
            )
    if next(model.parameters(), None) is None:
        raise UnsupportedNetwork("the network has no parameters: there is nothing to learn about.")
    last = _last(model)
    if classes and isinstance(last, (nn.Softmax, nn.Softmax2d)):
        raise UnsupportedNetwork(_softmax("its last layer is a softmax"))


def check_logits(outputs: Tensor) -> None:
    """Refuse outputs that are probabilities already.

    Raises:
        UnsupportedNetwork: if every row is a distribution over the last dimension.
    """
    if outputs.ndim < 2 or outputs.shape[-1] < 2 or outputs.shape[0] < 2 or not outputs.is_floating_point():
        return
    one = (outputs.sum(-1) - 1).abs().max() < 1e-3
    if bool(one) and bool((outputs > 0).all()):
        raise UnsupportedNetwork(_softmax("its outputs are positive and sum to one"))


def _softmax(how: str) -> str:
    return f"the network already ends in a softmax ({how}): take it off, logits are needed."


def _last(model: nn.Module) -> nn.Module:
    """The layer that makes the outputs, where that can be told without running it."""
    while isinstance(model, nn.Sequential) and len(model):
        model = model[-1]
    return model
