"""Where the training set is worked on: in threads, out of core, or on a Dask cluster. The only part that knows."""
