"""The methods of the paper and of today, by the names that plans and records use."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from knnpress import compression
from knnpress.compression import StochasticCompression
from knnpress.estimators import SCC, SHC, PrototypeClassifier
from knnpress.experiments import peers
from knnpress.geometries import AIRM, EMD, Geometry, LogEuclidean
from knnpress.typing import Array

#: Methods that learn prototypes by our own settings
OURS = ("SCC", "SHC")
#: Methods that stop by themselves
CONDENSING = ("Condensed", "Reduced", "FastCondensed")


@dataclass(frozen=True)
class Setting:
    """What a method is to run on: the geometry of the points, how many prototypes, and the seed."""

    geometry: Geometry
    ground_cost: Array | None
    reg: float | None
    n_prototypes: int | None
    seed: int
    params: dict[str, Any]


@dataclass(frozen=True)
class Method:
    """How to make a classifier, whether it has a size that can be asked for, and one that it has by itself.

    One that takes groups is told which training points belong together.
    """

    build: Callable[[Setting], Any]
    sized: bool = False
    alone: bool = True
    takes_groups: bool = False
    most_queries: int | None = None  # beyond which it would take too long


def _full(geometry: Callable[[Setting], Geometry]) -> Callable[[Setting], Any]:
    return lambda setting: PrototypeClassifier(geometry(setting))


def _compressed(name: str, **usual: Any) -> Callable[[Setting], Any]:
    def build(setting: Setting) -> Any:
        compressor = getattr(compression, name)(**{**usual, **setting.params})
        return PrototypeClassifier(
            setting.geometry, compressor, n_prototypes=setting.n_prototypes, random_state=setting.seed
        )

    return build


def _learned(make: Callable[..., Any], histograms: bool) -> Callable[[Setting], Any]:
    """A learned classifier as it comes; parameters that are not its own are its compressor's."""

    def build(setting: Setting) -> Any:
        cost = {"ground_cost": setting.ground_cost, "reg": setting.reg} if histograms else {}
        expert = {name: value for name, value in setting.params.items() if name in _EXPERT}
        own = {name: value for name, value in setting.params.items() if name not in _EXPERT}
        model = make(n_prototypes=setting.n_prototypes, random_state=setting.seed, **cost, **own)
        if expert:
            model.compressor = (model.compressor or StochasticCompression()).set_params(**expert)
        return model

    return build


_EXPERT = StochasticCompression().get_params(deep=False).keys() - SCC().get_params(deep=False).keys()


METHODS: dict[str, Method] = {
    "full": Method(_full(lambda setting: setting.geometry)),
    "full k": Method(lambda setting: peers.NeighborsCV(setting.geometry)),
    "full AIRM": Method(_full(lambda setting: AIRM()), most_queries=300),
    "full LogEuclidean": Method(_full(lambda setting: LogEuclidean())),
    "full EMD": Method(_full(lambda setting: EMD(setting.ground_cost)), most_queries=150),
    "full Euclidean": Method(lambda setting: peers.NearestBy("euclidean")),
    "full L1": Method(lambda setting: peers.NearestBy("manhattan")),
    "full chi-square": Method(lambda setting: peers.NearestBy("chi-square")),
    "Subsample": Method(_compressed("Subsample"), sized=True, alone=False),
    "ClassCentroids": Method(_compressed("ClassCentroids"), sized=True, alone=False),
    "Condensed": Method(_compressed("Condensed"), sized=True),
    "Reduced": Method(_compressed("Reduced"), sized=True),
    "FastCondensed": Method(_compressed("FastCondensed"), sized=True),
    "LearningVectorQuantization": Method(_compressed("LearningVectorQuantization"), sized=True, alone=False),
    "RandomMutation": Method(_compressed("RandomMutation", n_mutations=1000), sized=True, alone=False),
    "SCC": Method(_learned(SCC, False), sized=True, alone=False),
    "SCC jbld": Method(_learned(partial(SCC, metric="jbld"), False), sized=True, alone=False),
    "SCC groups": Method(_learned(SCC, False), sized=True, alone=False, takes_groups=True),
    "SCC paper": Method(_learned(SCC.paper, False), sized=True, alone=False),
    "SHC": Method(_learned(SHC, True), sized=True, alone=False),
    "SHC sinkhorn": Method(_learned(partial(SHC, metric="sinkhorn"), True), sized=True, alone=False),
    "SHC paper": Method(_learned(SHC.paper, True), sized=True, alone=False),
    "MDM": Method(lambda setting: peers.mdm()),
    "tangent space + LR": Method(lambda setting: peers.logistic_regression(peers.tangent())),
    "tangent space + SVM": Method(lambda setting: peers.support_vectors(peers.tangent())),
    "roots + LR": Method(lambda setting: peers.logistic_regression(peers.roots())),
    "SPDNet": Method(lambda setting: peers.SPDNet(random_state=setting.seed, **setting.params)),
}
