"""The page on which people compare clips, and its server."""

from preferl.annotate.app import create_app
from preferl.annotate.serve import serve
from preferl.annotate.settings import AnnotateSettings

__all__ = ["AnnotateSettings", "create_app", "serve"]
