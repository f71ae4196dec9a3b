"""Sums of gradients over chunks, outside any engine.

``fast`` adds in float32: cheap, but the last bits depend on how chunks were cut and ordered. ``exact`` rounds each
sequence's gradient to multiples of 2^-44 and adds in float64, where sums of such numbers below 2^9 have no rounding
error: the total is the same bits in any order and on any set of workers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_GRID = 2.0**44
_LIMIT = 2.0**8
"""Partial sums must stay below 2^53 / 2^44 = 2^9; half of it leaves room for the other replicas."""


class GradientSum:
    """One flat buffer over all parameters of a model; allocated when something is added."""

    def __init__(self, shapes: Sequence[torch.Size], exact: bool, device: torch.device) -> None:
        self._shapes = list(shapes)
        self._sizes = [shape.numel() for shape in shapes]
        self._dtype = torch.float64 if exact else torch.float32
        self._device = device
        self._exact = exact
        self.flat: torch.Tensor | None = None

    def add(self, gradients: Sequence[torch.Tensor | None]) -> None:
        """Add one gradient, given per parameter; ``None`` is zero."""
        for part, gradient in zip(self.buffer().split(self._sizes), gradients, strict=True):
            if gradient is None:
                continue
            flat = gradient.detach().reshape(-1)
            part.add_(torch.round(flat.double().mul_(_GRID)).div_(_GRID) if self._exact else flat.float())

    def add_flat(self, other: torch.Tensor) -> None:
        """Add another replica's sum."""
        self.buffer().add_(other.to(self._device))

    def per_parameter(self) -> list[torch.Tensor]:
        """The total, in parameter shapes.

        Raises:
            ArithmeticError: if an exact sum left the range in which it is exact, or is not a number.
        """
        flat = self.buffer()
        if self._exact and not float(flat.abs().max()) < _LIMIT:
            raise ArithmeticError(f"a gradient is above {_LIMIT:g} or not a number; exact merging cannot represent it")
        return [part.view(shape) for part, shape in zip(flat.split(self._sizes), self._shapes, strict=True)]

    def clear(self) -> None:
        """Forget everything and free the buffer."""
        self.flat = None

    def buffer(self) -> torch.Tensor:
        """The flat total; zeros if nothing was added."""
        if self.flat is None:
            self.flat = torch.zeros(sum(self._sizes), dtype=self._dtype, device=self._device)
        return self.flat
