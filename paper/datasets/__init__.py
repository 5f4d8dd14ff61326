"""One module for each data set: where it comes from, how it is read, what it yields."""

from .folder import data_file, data_folder

__all__ = ["data_file", "data_folder"]
