"""HTTP service over models of sets, and the explorer page (extra ``[serve]``)."""

from .app import create_app
from .limits import Limits, RequestError
from .models import Served, concepts, load, served
from .server import BackgroundHandler, JsonFormatter, check_address, serve

__all__ = [
    "BackgroundHandler", "JsonFormatter", "Limits", "RequestError", "Served", "check_address", "concepts",
    "create_app", "load", "serve", "served",
]  # fmt: skip
