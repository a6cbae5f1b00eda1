"""Points that stay where they are: learning from a zarr store, here and on the workers of a Dask cluster.

The store is read block by block, and the workers hold a share of it each. Blocks are added in the same order wherever
they are, so all three ways end with the same prototypes. Needs the extra ``dask``.
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

    scc = kp.SCC(n_prototypes=12, gamma="scale", max_iter=15, random_state=0)
    here = scc.fit(X[:], y).prototypes_.copy()

    with Client(processes=False, n_workers=2, threads_per_worker=1, dashboard_address=":0"):
        lazy = da.from_zarr(f"{folder}/data.zarr", component="X")
        there = scc.fit(lazy, y).prototypes_  # on the workers; they send gradients, not points
        labels = scc.predict(lazy)  # lazy: nothing is computed yet
        assert isinstance(labels, da.Array)
        error = float(np.mean(labels.compute() != y))

print(f"{N} matrices of {D} x {D}, {len(there)} prototypes, {error:.1%} training errors")
print(f"largest difference between the prototypes of this process and of the cluster: {np.abs(here - there).max():.1e}")
assert np.allclose(here, there, rtol=0, atol=1e-9)
assert error < 0.05
