"""HTTP service over models of sets, and the explorer page (extra ``[serve]``)."""

from .app import create_app
from .models import load, served, words
from .schema import Limits
from .server import serve

__all__ = ["Limits", "create_app", "load", "serve", "served", "words"]
