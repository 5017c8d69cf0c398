"""Texts and scripts that an export carries. No script here is imported by Perpetune itself."""

from pathlib import Path


def source(name: str) -> str:
    """The text of one of the files here."""
    return Path(__file__).with_name(name).read_text(encoding="utf-8")
