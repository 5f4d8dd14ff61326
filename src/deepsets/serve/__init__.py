"""HTTP service over models of sets, and the explorer page (extra ``[serve]``)."""

from .app import create_app
from .limits import Limits, RequestError
from .models import Served, load, served, words
from .server import BackgroundHandler, JsonFormatter, check_address, serve

__all__ = [
    "BackgroundHandler", "JsonFormatter", "Limits", "RequestError", "Served", "check_address", "create_app",
    "load", "serve", "served", "words",
]  # fmt: skip
