"""The page on which people compare clips, and its server."""

from preferl.annotate.app import AnnotateSettings, create_app
from preferl.annotate.serve import serve

__all__ = ["AnnotateSettings", "create_app", "serve"]
