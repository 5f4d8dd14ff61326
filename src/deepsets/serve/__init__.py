"""HTTP service over models of sets, and the explorer page (extra ``[serve]``)."""

from .app import create_app
from .limits import Limits
from .models import Served, load, served, words
from .server import serve

__all__ = ["Limits", "Served", "create_app", "load", "serve", "served", "words"]
