"""Search, re-ranking and explanations over HTTP, and the page."""

from glassrank.serve.app import make_app
from glassrank.serve.limits import Limits
from glassrank.serve.loaded import IndexReloader
from glassrank.serve.options import Options
from glassrank.serve.run import serve

__all__ = ["IndexReloader", "Limits", "Options", "make_app", "serve"]
