"""Where work is done: in processes of this machine, or by the workers of a Dask cluster."""
