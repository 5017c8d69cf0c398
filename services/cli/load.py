"""Reads a campaign's record back from its run folder, running, paused or finished."""

import asyncio

from services.cli.errors import UsageError
from services.local.run_folder import RunFolder
from services.local.system import open_ledger
from services.report.record import CampaignRecord


def load(folder: RunFolder) -> CampaignRecord:
    """The record of the folder's campaign. Raises UsageError when its ledger holds none."""
    record = asyncio.run(_load(folder))
    if record.opening is None:
        why = f": {record.reason}" if record.reason else ""
        raise UsageError(f"campaign {folder.campaign} was never opened{why}; logs: {folder.logs}")
    return record


async def _load(folder: RunFolder) -> CampaignRecord:
    record = CampaignRecord(folder.campaign)
    async with open_ledger(folder) as ports:
        async for recorded in ports.ledger.read():
            record.apply(recorded)
    return record
