"""The HTTP API over models of sets, and the explorer page (extra `[serve]`)."""

from ._app import create_app as create_app
from ._limits import Limits as Limits
from ._models import Served as Served
from ._models import concepts as concepts
from ._models import load as load
from ._models import served as served
from ._server import check_address as check_address
from ._server import serve as serve
