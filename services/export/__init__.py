"""A release as files that work without Perpetune: patches, an overlay, commands, a README.

Everything but `write` is pure: from a record and blobs to `{path: bytes}`.
"""

from services.export.errors import ExportError
from services.export.files import export_files
from services.export.write import write_files

__all__ = ["ExportError", "export_files", "write_files"]
