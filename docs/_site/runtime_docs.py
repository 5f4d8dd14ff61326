"""Extension of the API reference: docstrings that are completed when a class is made, as `help()` shows them."""

import importlib
import inspect

import griffe


class RuntimeDocs(griffe.Extension):
    """Replace a docstring with a placeholder by the one of the imported class."""

    def on_class(self, *, cls, **kwargs):
        """Look at each class."""
        if cls.docstring and "{parameters}" in cls.docstring.value:
            found = getattr(importlib.import_module(cls.module.path), cls.name)
            cls.docstring.value = inspect.getdoc(found)
