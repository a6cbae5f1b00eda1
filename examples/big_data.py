"""Points that stay where they are: learning from a zarr store, here and on the workers of a Dask cluster.

The workers hold a share of the store each, and send gradients, not points. Blocks are added in the same order wherever
they are, so the number of workers does not matter. Needs the extra ``dask``.
"""

from tempfile import TemporaryDirectory

import dask.array as da
import numpy as np
import zarr
from distributed import Client

import knnpress as kp

N, D = 4000, 8

with TemporaryDirectory() as folder:
    store = zarr.open_group(f"{folder}/data.zarr", mode="w")
    X = store.create_array("X", shape=(N, D, D), chunks=(500, D, D), dtype="float64")
    data = kp.datasets.make_wishart_classes(N, D, n_classes=4, out=X)  # written block by block
    y = data.y

    here = kp.SCC(n_prototypes=12).fit(X, y)  # a large store would be read block by block
    here_error = 1 - here.score(X[:], y)

    prototypes, lazy = [], da.from_zarr(f"{folder}/data.zarr", component="X")
    for n_workers in (1, 2):
        with Client(processes=False, n_workers=n_workers, threads_per_worker=1, dashboard_address=":0"):
            there = kp.SCC(n_prototypes=12).fit(lazy, y)
            prototypes.append(there.prototypes_)
            labels = there.predict(lazy)  # lazy: nothing is computed yet
            assert isinstance(labels, da.Array)
            error = float(np.mean(labels.compute() != y))

difference = np.abs(prototypes[0] - prototypes[1]).max()
print(f"{N} matrices of {D} x {D}, 12 prototypes, training errors: {here_error:.1%} here, {error:.1%} on the workers")
print(f"largest difference between the prototypes of one worker and of two: {difference:.1e}")
assert difference < 1e-9
assert max(error, here_error) < 0.05
