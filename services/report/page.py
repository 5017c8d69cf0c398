"""`report.html`: one self-contained page."""

from html import escape

from services.blobs import Blobs
from services.report.record import CampaignRecord
from services.report.summary import Summary


def page(record: CampaignRecord, summary: Summary, blobs: Blobs) -> str:
    """The whole page as text."""
    return f"<!doctype html><title>{escape(summary.campaign)}</title>"
