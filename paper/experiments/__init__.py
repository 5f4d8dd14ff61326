"""One module per experiment of the paper; each ends with `EXPERIMENT`."""
