"""Extension of the API reference: docstrings as `help()` shows them, with an entry of its own for each parameter."""

import importlib
import inspect
import re

import griffe

# "width, depth : int, int" and its indented description
SHARED = re.compile(r"^(\*{0,2}\w+(?:, \*{0,2}\w+)+)(?: : ([^\n]+))?\n((?:    [^\n]*\n?)+)", re.M)

ROLE = re.compile(r":(?:class|func|meth|mod|attr):`~?([^`]+)`")  # Sphinx roles, for editors that link them
MATH = re.compile(r":math:`([^`]+)`")


class RuntimeDocs(griffe.Extension):
    """Complete docstrings with a placeholder by those of the imported classes, and split entries that share a text."""

    def on_object(self, *, obj, **kwargs):
        """Look at each class and function."""
        if not obj.docstring:
            return
        if obj.is_class and "{parameters}" in obj.docstring.value:
            found = getattr(importlib.import_module(obj.module.path), obj.name)
            obj.docstring.value = inspect.getdoc(found)
        text = SHARED.sub(self._split, obj.docstring.value)
        obj.docstring.value = MATH.sub(r"$\1$", ROLE.sub(r"`\1`", text))

    @staticmethod
    def _split(found):
        """One entry per name; otherwise the default of the first parameter would be shown for all."""
        names, kind, text = found[1].split(", "), found[2], found[3].rstrip("\n")
        kinds = (kind or "").split(", ")
        kinds = kinds if len(kinds) == len(names) else [kind or ""] * len(names)
        end = "\n" if found[3].endswith("\n") else ""
        entries = zip(names, kinds, strict=True)
        return "\n".join(f"{name}{' : ' if each else ''}{each}\n{text}" for name, each in entries) + end
