"""Models as source code that needs nothing else: one C99 file, one header, or one JavaScript module."""

from __future__ import annotations

from knnpress.export.write import export_c, export_js

__all__ = ["export_c", "export_js"]
