"""Tensors of other libraries, as far as DLPack shows them: for when none is installed."""

from __future__ import annotations

from typing import Any

import numpy as np

NDArray = np.ndarray[Any, Any]


class Foreign:
    """A tensor that offers DLPack alone; `device` is where it says that it lies."""

    def __init__(self, x: NDArray, device: tuple[int, ...] = (1, 0)) -> None:
        self.x = x
        self.device = device

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.x.__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[int, ...]:
        return self.device


class Older(Foreign):
    """It speaks DLPack as it was before version 1: without a version, and without read-only."""

    def __dlpack__(self, stream: object = None) -> Any:
        return self.x.__dlpack__()


class NeedsGradient(Foreign):
    """As torch's tensors that autograd watches."""

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")


class Broken(Foreign):
    """It raises whatever it likes."""

    def __init__(self, x: NDArray, error: Exception) -> None:
        super().__init__(x)
        self.error = error

    def __dlpack__(self, **kwargs: Any) -> Any:
        raise self.error


class NoDevice:
    """It does not say where it lies."""

    def __init__(self, x: NDArray) -> None:
        self.x = x

    def __dlpack__(self, **kwargs: Any) -> Any:
        return self.x.__dlpack__(**kwargs)
