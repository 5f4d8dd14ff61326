"""The HTTP API over models of sets, and the explorer page (extra `[serve]`)."""

from .app import create_app as create_app
from .limits import Limits as Limits
from .models import Served as Served
from .models import load as load
from .models import served as served
from .models import words as words
from .server import check_address as check_address
from .server import serve as serve
