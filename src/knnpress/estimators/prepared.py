"""What queries need of a model: computed once, and kept while the model stays unchanged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, cast
from weakref import WeakKeyDictionary

import numpy as np

from knnpress.execution.threads import BLOCK_BYTES
from knnpress.geometries import EmbeddedGeometry, Geometry, SquaredEuclidean
from knnpress.neighbors import ByClass
from knnpress.typing import Array

_PLAIN = (type(None), bool, int, float, str, np.generic)


@dataclass(frozen=True)
class Prepared:
    """What depends on a fitted model alone.

    Attributes
    ----------
    distances : callable
        From a checked block of X to its distances to every prototype.
    by_class : ByClass
        The prototypes in the order of their classes.
    """

    distances: Callable[[Array], Array]
    by_class: ByClass


# Not within the models, which would have to leave it out of copies and files. Each with copies of what it was made of.
_known: WeakKeyDictionary[Any, tuple[list[Any], Prepared]] = WeakKeyDictionary()


def prepared(model: Any, geometry: Geometry) -> Prepared:
    """What queries of a fitted model need.

    Kept until any of the model's arrays or its geometry's parameters changes, be it in place: they are compared, which
    takes a few microseconds. Not kept where that would take much memory or a parameter is more than numbers and text.
    """
    vectors = getattr(model, "prototype_vectors_", None)
    parts = [model.prototypes_, vectors, model.prototype_labels_, model.classes_, type(geometry).__qualname__]
    parts += getattr(geometry, "__dict__", {"": geometry}).values()
    kept = _known.get(model)
    if kept is not None and len(kept[0]) == len(parts) and all(map(_same, kept[0], parts)):
        return kept[1]
    codes = np.searchsorted(model.classes_, model.prototype_labels_)
    by_class = ByClass.of(codes, len(model.classes_))
    size = sum(part.nbytes for part in parts if isinstance(part, np.ndarray))
    if size > BLOCK_BYTES or not all(map(_can_be_kept, parts)):
        return Prepared(_distances(geometry, model.prototypes_, vectors), by_class)
    parts = [part.copy() if isinstance(part, np.ndarray) else part for part in parts]
    made = Prepared(_distances(geometry, parts[0], parts[1]), by_class)
    _known[model] = (parts, made)
    return made


def _distances(geometry: Geometry, prototypes: Array, vectors: Array | None) -> Callable[[Array], Array]:
    if vectors is None:
        return geometry.distances_to(prototypes)
    embedded = cast(EmbeddedGeometry, geometry)  # isinstance would take as long as the query
    between = SquaredEuclidean().distances_to(vectors)
    return lambda X: between(embedded.embed(X, 1))


def _can_be_kept(part: Any) -> bool:
    return type(part) is np.ndarray or isinstance(part, _PLAIN)


def _same(kept: Any, part: Any) -> bool:
    if type(kept) is not type(part):
        return False
    if type(kept) is np.ndarray:
        return kept.shape == part.shape and kept.dtype == part.dtype and bool((kept == part).all())
    return bool(kept == part)
