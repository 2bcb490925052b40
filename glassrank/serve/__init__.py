"""Search, re-ranking and explanations over HTTP, and the page."""

from glassrank.serve.app import make_app
from glassrank.serve.limits import Limits
from glassrank.serve.opened import Served
from glassrank.serve.options import Options
from glassrank.serve.run import serve

__all__ = ["Limits", "Options", "Served", "make_app", "serve"]
