"""Models as files: the numbers in safetensors, the rest in JSON. Nothing in a file is ever run."""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Callable, Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from inspect import signature
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save as to_safetensors
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import check_is_fitted

from knnpress.clouds import Clouds
from knnpress.exceptions import InvalidPointError, ModelFileError
from knnpress.execution.threads import row_blocks
from knnpress.files import replacing
from knnpress.geometries.base import CloudGeometry, EmbeddedGeometry
from knnpress.typing import Array

_FORMAT, _VERSION = "knnpress-model", 1
_DUMPS = {bytes([0x80, version]) for version in range(2, 6)}  # how they begin
_HOMES = ("knnpress", "knnpress.geometries", "knnpress.compression", "knnpress.descriptors")
_NOT_KEPT = ("callback", "checkpoint", "memory")  # they belong to one run on one machine
_NUMBERS = {"bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64))}
_NUMBERS |= {"float16", "float32", "float64"}
_VALUE_BYTES = 120  # that a value of JSON takes, with what is made of it
_ROOM, _TIMES = 2**25, 3  # bytes that values of JSON may take in any case, and by the size of the file
_GAMMA = 1e-150, 1e150  # squares of others leave the range of doubles
_SMALL = 1024  # bytes of an array that is written again rather than referred to
_LONG = 16  # floats from which a list is better kept as a tensor


def save(model: BaseEstimator, path: str | os.PathLike[str]) -> None:
    """Write a fitted model to one file, from which `load` makes the same model again.

    The file is replaced in one step: whatever happens on the way, `path` holds the old model or the new one.

    Parameters
    ----------
    model : estimator of knnpress, or a scikit-learn Pipeline of such
        Fitted. What belongs to one run is not kept and is None after loading: `callback`, `checkpoint`, the `memory`
        of a pipeline, and a `random_state` that is a generator.
    path : str or path
        Its folder must exist.

    Raises
    ------
    TypeError
        Where a step or a parameter is not of knnpress, e.g. a compressor of your own.
    """
    if not _is_ours(model) or not hasattr(model, "fit"):
        raise TypeError(f"cannot save a {type(model).__name__}; give a classifier or transformer of knnpress")
    check_is_fitted(model)
    writer = _Writer()
    try:
        code = writer.code(model, type(model).__name__)
        about = {"version": _VERSION, "knnpress": version("knnpress"), "model": code}
        about["checksum"] = _checksum(about, writer.tensors, writer.tensors.__getitem__)
        header = {_FORMAT: _as_json(about)}
    except RecursionError:
        raise TypeError(f"cannot save this {type(model).__name__}: one of its values contains itself") from None
    with replacing(Path(path)) as file:
        file.write(to_safetensors(writer.tensors, header))


def load(path: str | os.PathLike[str]) -> Any:
    """Return the model that `save` wrote, with the same predictions to the last bit.

    Safe with files from strangers: a file names classes of knnpress and holds their values, and no code.

    Parameters
    ----------
    path : str or path

    Raises
    ------
    ModelFileError
        Where the file is damaged, something else, or written by a newer knnpress.
    """
    path = Path(path)
    if not stat.S_ISREG(path.stat().st_mode):
        raise ModelFileError(f"{path} is a folder or a device; give the file that save wrote")
    path.open("rb").close()  # safetensors says of a file that may not be read that it is not there
    try:
        with safe_open(path, "numpy") as file:
            header = file.metadata() or {}
            if _FORMAT not in header:
                raise ValueError("another program wrote it")
            _check_room(header[_FORMAT], path.stat().st_size)
            about = json.loads(header[_FORMAT], parse_constant=_no_constant)
            if about["version"] > _VERSION:
                raise ModelFileError(
                    f"{path} was written by a newer knnpress ({about.get('knnpress')}); pip install --upgrade knnpress"
                )
            if about["version"] != _VERSION:
                raise ValueError(f"it has the unknown version {about['version']!r}")
            _verify(about, file)
            model = _Reader(file).value(about["model"])
        if not _is_ours(model) or not (hasattr(model, "predict") or hasattr(model, "transform")):
            raise ValueError(f"it holds a {type(model).__name__}, which is not a model")
        check_is_fitted(model)
        return model
    except (ModelFileError, FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # whatever fails in here, it is the file that made it fail
        what = str(error) if isinstance(error, (ValueError, SafetensorError)) else f"{type(error).__name__}: {error}"
        with path.open("rb") as file:
            if file.read(2) in _DUMPS:
                what = "it seems to be from joblib.dump or the like; joblib.load reads it, if you trust it"
        raise ModelFileError(f"{path} is not a sound model: {what}; take a fresh copy, or save it again") from error


def _check_room(text: str, size: int) -> None:
    """Refuse JSON whose values would take far more room than the file, before they do."""
    values = sum(map(text.count, ",[{"))
    if _VALUE_BYTES * values > max(_ROOM, _TIMES * size):
        raise ValueError(f"its header holds {values:,} values, which is more than a file of {size:,} bytes should")


def _as_json(about: dict[str, Any]) -> str:
    return json.dumps(about, allow_nan=False, separators=(",", ":"))


def _checksum(about: dict[str, Any], names: Iterable[str], tensor: Callable[[str], Array]) -> str:
    """A code of all that a file holds: its JSON, and every tensor with its name, type and shape."""
    digest = hashlib.sha256(_as_json(about).encode())
    for name in sorted(names):
        array = tensor(name)
        digest.update(f"{name} {array.dtype.name} {array.shape}".encode(errors="surrogatepass"))
        digest.update(_bytes(array))
    return digest.hexdigest()


def _bytes(array: Array) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _digest(array: Array) -> bytes:
    return hashlib.sha256(_bytes(array)).digest()


def _verify(about: dict[str, Any], file: Any) -> None:
    """Refuse a file that is not as it was written. Those of the first versions have no checksum."""
    strange = about.keys() - {"version", "knnpress", "model", "checksum"}
    if strange:
        raise ValueError(f"its header says {min(strange)!r}, which means nothing")
    if "checksum" in about:
        rest = {name: value for name, value in about.items() if name != "checksum"}
        if _checksum(rest, file.keys(), file.get_tensor) != about["checksum"]:
            raise ValueError("its checksum does not agree with what it holds: it was damaged, or changed by hand")


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@cache
def _classes() -> dict[str, type[BaseEstimator]]:
    """All that a file may name."""
    homes = [import_module(home) for home in _HOMES if find_spec(home)]
    public = [getattr(home, name) for home in homes for name in getattr(home, "__all__", ())]
    ours = [thing for thing in public if isinstance(thing, type) and issubclass(thing, BaseEstimator)]
    return {"Pipeline": Pipeline} | {cls.__name__: cls for cls in ours}


def _is_ours(value: Any) -> bool:
    return _classes().get(type(value).__name__) is type(value)


def _fitted(model: BaseEstimator) -> dict[str, Any]:
    return {name: value for name, value in vars(model).items() if _is_fitted_name(name)}


def _is_fitted_name(name: str) -> bool:
    return name.isidentifier() and name.endswith("_") and not name.startswith("_")


class _Writer:
    """From values to JSON; arrays go to `tensors`, under the name of where they were found, and equal ones once."""

    def __init__(self) -> None:
        self.tensors: dict[str, Array] = {}
        self._written: dict[Any, str] = {}

    def code(self, value: Any, where: str) -> Any:
        """What stands for a value in JSON: itself, or an object whose first key says what it is."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) is float:
            return value if math.isfinite(value) else {"float": repr(value)}
        if isinstance(value, np.generic):
            return {**self.array(np.asarray(value), where), "scalar": True}
        if isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray):
            return self.array(np.asarray(value), where)
        if type(value) is list and len(value) >= _LONG and all(type(item) is float for item in value):
            return {"floats": self.tensor(np.array(value), where)}
        if type(value) in (list, tuple):
            items = [self.code(item, f"{where}[{i}]") for i, item in enumerate(value)]
            return items if type(value) is list else {"tuple": items}
        if type(value) is dict:
            items = [[self.code(k, f"a key of {where}"), self.code(v, f"{where}[{k!r}]")] for k, v in value.items()]
            return {"dict": items}
        if isinstance(value, Clouds):
            return {"clouds": {name: self.tensor(array, f"{where}.{name}") for name, array in value.arrays().items()}}
        if _is_ours(value):
            return self.object(value, where)
        raise TypeError(
            f"cannot save {where}: a {type(value).__name__} is not part of knnpress; a model file holds numbers, text, "
            "arrays, lists, dicts and what knnpress exports. Replace it, or keep that part by other means (e.g. skops)"
        )

    def object(self, model: BaseEstimator, where: str) -> dict[str, Any]:
        """A class by its name, with its parameters and what was fitted."""
        params = {name: self.parameter(name, value, where) for name, value in model.get_params(deep=False).items()}
        fitted = {name: self.code(value, f"{where}.{name}") for name, value in _fitted(model).items()}
        _check(model)
        return {"class": type(model).__name__, "params": params, "fitted": fitted}

    def parameter(self, name: str, value: Any, where: str) -> Any:
        if name in _NOT_KEPT or (name == "random_state" and not isinstance(value, Integral)):
            return None
        if name == "steps":  # of a pipeline: what is wrong with one is said by its name
            return [{"tuple": [step, self.code(part, f"{where}.{step}")]} for step, part in value]
        return self.code(value, f"{where}.{name}")

    def array(self, array: Array, where: str) -> dict[str, Any]:
        """A tensor, and what else it takes to have the array back: its text, its other triangle, its layout."""
        if array.dtype.kind == "O":
            items = array.ravel().tolist()
            if any(isinstance(item, (list, tuple, dict, np.ndarray, BaseEstimator)) for item in items):
                raise TypeError(f"cannot save {where}: an array of objects other than text and numbers")
            return {"objects": [self.code(item, f"an element of {where}") for item in items], "shape": array.shape}
        layout = "F" if array.flags.f_contiguous and not array.flags.c_contiguous else "C"
        same = (array.dtype.str, array.shape, layout, _digest(array)) if array.nbytes > _SMALL else None
        if same in self._written:
            return {"same": self._written[same]}
        code: dict[str, Any] = {}
        if array.flags.f_contiguous and not array.flags.c_contiguous:
            code["order"] = "F"  # BLAS may round otherwise in another layout
        array = np.asarray(array, array.dtype.newbyteorder("="), order="C")
        if array.dtype.kind == "U":
            code["text"] = True
            array = array.reshape(-1).view(np.uint32).reshape(*array.shape, array.dtype.itemsize // 4)
        elif array.dtype.name not in _NUMBERS:
            raise TypeError(f"cannot save {where}: an array of dtype {array.dtype}; make it float64 or text")
        elif _is_symmetric(array):
            code["symmetric"] = True
            array = array[..., *np.tril_indices(array.shape[-1])]
        name = self.tensor(array, where)
        if same is not None:
            self._written[same] = name
        return {"array": name, **code}

    def tensor(self, array: Array, where: str) -> str:
        name = where if where not in self.tensors else f"{where} ({len(self.tensors)})"
        self.tensors[name] = np.asarray(array, order="C")
        return name


def _is_symmetric(array: Array) -> bool:
    """Whether float64 matrices are symmetric to the last bit."""
    if array.dtype != np.float64 or array.ndim < 2 or not 1 < array.shape[-1] == array.shape[-2]:
        return False
    bits = array.view(np.int64)
    return bool((bits == bits.swapaxes(-1, -2)).all())


class _Reader:
    """From JSON to values. Whatever is not as `_Writer` makes it raises some exception."""

    def __init__(self, file: Any) -> None:
        self.file, self.unread = file, set(file.keys())
        self._arrays: dict[str, Array] = {}

    def value(self, code: Any) -> Any:
        if isinstance(code, list):
            return [self.value(item) for item in code]
        if not isinstance(code, dict):
            return code
        kind = next(iter(code), "nothing")
        if kind == "float":
            return float(code["float"])
        if kind == "floats":
            return self.tensor(code["floats"], np.float64).tolist()
        if kind == "tuple":
            return tuple(self.value(code["tuple"]))
        if kind == "dict":
            return {self.value(k): self.value(v) for k, v in code["dict"]}
        if kind in ("array", "objects"):
            array = self.array(code)
            if kind == "array":
                self._arrays[code["array"]] = array
            return array[()] if code.get("scalar") else array
        if kind == "same":  # as one that was read before; they share their numbers, so that the model stays as small
            return self._arrays[code["same"]]
        if kind == "clouds":
            arrays = {name: self.tensor(tensor) for name, tensor in code["clouds"].items()}
            return Clouds.from_arrays(arrays, "its clouds")
        if kind == "class":
            return self.object(code["class"], code["params"], code["fitted"])
        raise ValueError(f"it holds {kind!r} where a value should be")

    def object(self, name: str, params: dict[str, Any], fitted: dict[str, Any]) -> BaseEstimator:
        if name not in _classes():
            raise ValueError(f"it holds a {name!r}, which this knnpress does not have")
        cls = _classes()[name]
        unknown = params.keys() - signature(cls).parameters.keys()
        unknown |= {attribute for attribute in fitted if not _is_fitted_name(attribute) or hasattr(cls, attribute)}
        if unknown:
            raise ValueError(
                f"it holds a {name} with {', '.join(map(repr, sorted(unknown)))}, which {name} does not have"
            )
        if any(params.get(forbidden) is not None for forbidden in _NOT_KEPT):
            raise ValueError(f"it sets one of {', '.join(_NOT_KEPT)}, which no model file may")
        model = cls(**{parameter: self.value(code) for parameter, code in params.items()})
        for attribute, code in fitted.items():
            setattr(model, attribute, self.value(code))
        _check(model)
        return model

    def array(self, code: dict[str, Any]) -> Array:
        if "objects" in code:
            flat = np.empty(len(code["objects"]), dtype=object)
            flat[:] = self.value(code["objects"])
            return flat.reshape(code["shape"])
        packed = np.uint32 if code.get("text") else np.float64 if code.get("symmetric") else None
        array = self.tensor(code["array"], packed)
        if code.get("text"):
            if array.max(initial=0) > 0x10FFFF:
                raise ValueError("its text is not Unicode")
            array = array.reshape(-1).view(f"U{array.shape[-1]}").reshape(array.shape[:-1])
        if code.get("symmetric"):
            array = _from_triangle(array)
        return np.asfortranarray(array) if code.get("order") == "F" else array

    def tensor(self, name: str, dtype: Any = None) -> Array:
        if name not in self.unread:  # nor twice: a small file must not grow into a large model
            raise ValueError(f"its tensor {name!r} is missing")
        self.unread.remove(name)
        array = np.require(self.file.get_tensor(name), requirements=["A", "W"])
        if array.dtype.name not in _NUMBERS or (dtype is not None and array.dtype != dtype):  # others would grow
            raise ValueError(f"its tensor {name!r} has dtype {array.dtype}")
        return array


def _from_triangle(array: Array) -> Array:
    """Symmetric matrices (..., d, d) from their lower triangles, (..., d (d + 1) / 2)."""
    length = array.shape[-1]
    d = (math.isqrt(8 * length + 1) - 1) // 2
    if d * (d + 1) // 2 != length:
        raise ValueError(f"{length} numbers are not a triangle")
    full = np.empty((*array.shape[:-1], d, d), dtype=array.dtype)
    for row in range(d):  # indices of a whole triangle would take more room than it
        part = array[..., row * (row + 1) // 2 : (row + 1) * (row + 2) // 2]
        full[..., row, : row + 1] = full[..., : row + 1, row] = part
    return full


def _checked(model: Any, points: Any) -> Any:
    """Prototypes as their geometry has them, or refused.

    Matrices that were learned as vectors, far from the data, can be singular for all that 64 bits can tell. It does no
    harm, since queries need only the vectors; that they stand for these matrices is proof enough.
    """
    try:
        return model._geometry().check(points, "prototypes_", n_jobs=1)
    except InvalidPointError:
        geometry, vectors = getattr(model, "geometry_", None), getattr(model, "prototype_vectors_", None)
        if not isinstance(vectors, np.ndarray) or not isinstance(geometry, EmbeddedGeometry):
            raise
        meant = geometry.unembed(vectors, n_jobs=1)
        largest = np.abs(points).max(axis=tuple(range(1, points.ndim)), keepdims=True)
        if meant.shape != points.shape or not (np.abs(meant - points) <= 1e-6 * largest).all():
            raise
        return points


def _check(model: Any) -> None:
    """Refuse what no `fit` can have made."""
    if isinstance(model, Pipeline):
        for name, step in model.steps:
            if not isinstance(name, str) or not (isinstance(step, BaseEstimator) or step in (None, "passthrough")):
                raise ValueError(f"the step {name!r} of its pipeline is a {type(step).__name__}")
        return
    fitted = _fitted(model)
    if not fitted or not hasattr(model, "_geometry"):
        return
    missing = {"prototypes_", "prototype_labels_", "classes_", "n_features_in_"} - fitted.keys()
    if missing:
        raise ValueError(f"{', '.join(sorted(missing))} of its {type(model).__name__} is missing")
    points, labels, classes = model.prototypes_, model.prototype_labels_, model.classes_
    if not all(isinstance(array, np.ndarray) for array in (labels, classes)) or not hasattr(points, "shape"):
        raise ValueError("prototypes_, prototype_labels_ and classes_ must be arrays")
    learned = isinstance(points, Clouds) or points.dtype == np.float64
    checked = _checked(model, points) if learned else points
    if checked is not points:
        blocks = row_blocks(len(points), points.nbytes // max(1, len(points)))
        learned &= all(np.allclose(checked[rows], points[rows], rtol=1e-6, atol=0.0) for rows in blocks)
    if not learned:
        raise ValueError("prototypes_ are not as learned: of float64, and histograms scaled to sum to one")
    if not np.array_equal(np.unique(classes), classes):
        raise ValueError("classes_ must be sorted and different")
    if labels.shape != points.shape[:1] or labels.dtype != classes.dtype or not np.isin(labels, classes).all():
        raise ValueError(f"prototype_labels_ must be one of classes_ for each of the {len(points)} prototypes")
    if np.shape(fitted.get("prototype_weights_", labels)) != labels.shape:
        raise ValueError(f"prototype_weights_ must be a number for each of the {len(points)} prototypes")
    levels = fitted.get("distance_levels_")
    if levels is not None and (not isinstance(levels, np.ndarray) or levels.shape[:1] != classes.shape):
        raise ValueError(f"distance_levels_ must be a row for each of the {len(classes)} classes")
    geometry = model._geometry()
    size = geometry.n_dims_of(points) if isinstance(geometry, CloudGeometry) else points.shape[1]
    if model.n_features_in_ != size:
        raise ValueError(f"n_features_in_ is {model.n_features_in_!r}, but points have size {size}")
    gamma = fitted.get("gamma_", 1.0)
    if not isinstance(gamma, (float, int)) or not _GAMMA[0] <= gamma <= _GAMMA[1]:
        raise ValueError(f"gamma_ is {repr(gamma)[:40]}, not a number from {_GAMMA[0]:g} to {_GAMMA[1]:g}")
    ratio = fitted.get("compression_ratio_", 1.0)
    if not isinstance(ratio, (float, int)) or not 0 < ratio < math.inf:
        raise ValueError(f"compression_ratio_ is {repr(ratio)[:40]}, not a positive number")
