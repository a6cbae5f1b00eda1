import enum

import numpy as np
from numpy.typing import NDArray

def targets() -> list[str]: ...
def target() -> str: ...
def set_target(name: str) -> None: ...

class Task:
    def __init__(self) -> None: ...
    def cancel(self) -> None: ...

def join_task(task: Task, helping: bool) -> None: ...
def leave_task() -> None: ...
def expect_leaks() -> None: ...

class SpdLanes:
    def __init__(self, X: NDArray[np.float64]) -> None: ...
    def inverse(self) -> NDArray[np.float64]: ...
    @property
    def groups(self) -> int: ...
    @property
    def lanes(self) -> int: ...
    @property
    def logdet(self) -> NDArray[np.float64]: ...
    @property
    def margin(self) -> NDArray[np.float64]: ...

class SpdSequence:
    def __init__(self, X: NDArray[np.float64]) -> None: ...
    @property
    def logdet(self) -> NDArray[np.float64]: ...
    @property
    def margin(self) -> NDArray[np.float64]: ...

def all_positive_definite(X: NDArray[np.float64], least: float, most: float, margin: float) -> bool: ...
def jbld_pairwise(
    x: SpdLanes,
    z: SpdSequence,
    lower: NDArray[np.float64] | None = None,
    limit: NDArray[np.float64] | None = None,
    mask: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]: ...
def jbld_pullback(
    x: SpdLanes, z: SpdSequence, weight: NDArray[np.float64], tolerance: float, single: bool = False
) -> NDArray[np.float64]: ...
def box_gaps(low: NDArray[np.float64], high: NDArray[np.float64], X: NDArray[np.float64]) -> NDArray[np.float64]: ...

class SinkhornCost:
    def __init__(self, M: NDArray[np.float64], reg: float) -> None: ...
    @property
    def stabilised(self) -> bool: ...

def sinkhorn(
    cost: SinkhornCost,
    X: NDArray[np.float64],
    Z: NDArray[np.float64],
    potential: NDArray[np.float64] | None,
    relaxation: NDArray[np.float64] | None,
    tol: float,
    max_iter: int,
    transport: bool,
    limit: NDArray[np.float64] | None = None,
    tols: NDArray[np.float64] | None = None,
    single: bool = False,
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]: ...
def sinkhorn_self(
    cost: SinkhornCost, X: NDArray[np.float64], tol: float, max_iter: int
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]: ...
def sinkhorn_pullback(
    cost: SinkhornCost,
    X: NDArray[np.float64],
    potential: NDArray[np.float64],
    weight: NDArray[np.float64],
    tolerance: float,
    single: bool = False,
) -> NDArray[np.float64]: ...
def clouds(
    cost: NDArray[np.float64],
    index: NDArray[np.int64],
    x_offsets: NDArray[np.int64],
    x_weights: NDArray[np.float64],
    z_offsets: NDArray[np.int64],
    z_weights: NDArray[np.float64],
    potential: NDArray[np.float64] | None,
    warm: bool,
    tol: float,
    max_iter: int,
    z_index: NDArray[np.int64] | None = None,
    limit: NDArray[np.float64] | None = None,
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]: ...
def clouds_pullback(
    cost: NDArray[np.float64],
    index: NDArray[np.int64],
    x_offsets: NDArray[np.int64],
    x_weights: NDArray[np.float64],
    z_offsets: NDArray[np.int64],
    z_weights: NDArray[np.float64],
    potential: NDArray[np.float64],
    weight: NDArray[np.float64],
    tolerance: float,
    plan: NDArray[np.float64],
    gradient: NDArray[np.float64],
) -> None: ...
def cloud_self(
    cost: NDArray[np.float64], weights: NDArray[np.float64], tol: float, max_iter: int
) -> tuple[float, NDArray[np.float64], int, float]: ...

class SpectralMap(enum.Enum):
    log = 0
    exp = 1
    sqrt = 2
    inverse_sqrt = 3

def eigen(X: NDArray[np.float64], values: NDArray[np.float64], vectors: NDArray[np.float64] | None) -> None: ...
def spectral_map(
    X: NDArray[np.float64],
    map: SpectralMap,
    out: NDArray[np.float64],
    congruence: NDArray[np.float64] | None = None,
) -> None: ...
def airm_pairwise(factors: NDArray[np.float64], whiteners: NDArray[np.float64]) -> NDArray[np.float64]: ...
def moments(signals: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]: ...
def soft_neighbor_loss(
    D: NDArray[np.float64],
    same: NDArray[np.bool_],
    sharpness: float,
    floor: float,
    smoothing: float,
    weight: NDArray[np.float64] | None = None,
    reach: NDArray[np.float64] | None = None,
) -> tuple[float, NDArray[np.float64]]: ...
