"""Where the training set is worked on: by threads, block by block out of a store, or on a Dask cluster."""
