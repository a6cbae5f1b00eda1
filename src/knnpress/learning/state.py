"""Where a descent is: all that it needs to go on, bit for bit, as if it had not been interrupted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from knnpress.typing import Array

Arrays = dict[str, Array]


@dataclass(frozen=True)
class DescentState:
    """A descent after one of its iterations.

    An optimiser fills in the first three; the rest is for the descent, which may go through several stages.

    Attributes
    ----------
    u : ndarray of shape (m, p)
        Parameters of the prototypes, as optimisers see them.
    loss_curve : list of float
        Of this stage, from its start.
    optimizer : dict of ndarray
        What the optimiser remembers, by its own names.
    earlier_curve : list of float
        Of the stages before.
    n_stages_left : int
        This one included.
    memories : list of dict of ndarray
        For each objective, what its row blocks remember.
    """

    u: Array
    loss_curve: list[float]
    optimizer: Arrays
    earlier_curve: list[float] = field(default_factory=list)
    n_stages_left: int = 1
    memories: list[Arrays] = field(default_factory=list)

    def to_arrays(self) -> Arrays:
        """The same as arrays by name."""
        arrays = {
            "u": self.u,
            "loss_curve": np.array(self.loss_curve),
            "earlier_curve": np.array(self.earlier_curve),
            "n_stages_left": np.array(self.n_stages_left),
            "n_memories": np.array(len(self.memories)),
            **pack("optimizer", self.optimizer),
        }
        for k, memory in enumerate(self.memories):
            arrays |= pack(f"memory {k}", memory)
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> DescentState:
        """What `to_arrays` made arrays of."""
        return cls(
            u=arrays["u"],
            loss_curve=arrays["loss_curve"].tolist(),
            optimizer=unpack("optimizer", arrays),
            earlier_curve=arrays["earlier_curve"].tolist(),
            n_stages_left=int(arrays["n_stages_left"]),
            memories=[unpack(f"memory {k}", arrays) for k in range(int(arrays["n_memories"]))],
        )


#: Takes a function that returns the state of a descent; calls it only when it is time to write a checkpoint.
SaveState = Callable[[Callable[[], DescentState]], None]


def pack(name: str, arrays: Arrays) -> Arrays:
    """The same arrays under names that begin with `name`."""
    return {f"{name}/{key}": array for key, array in arrays.items()}


def unpack(name: str, arrays: Arrays) -> Arrays:
    """What `pack` put under `name`."""
    return {key.removeprefix(f"{name}/"): array for key, array in arrays.items() if key.startswith(f"{name}/")}
