"""A made-up campaign written as a scheduler writes it: in the journal first, then in the ledger."""

from recorded_campaign import Recording
from scheduler.notary import Notary, Promised
from services.ports import Ports
from services.promotions import PromotionJournal


async def write(recording: Recording, ports: Ports, journal: PromotionJournal) -> None:
    """Append every event of the recording; promotions and the end go through the notary."""
    notary = Notary(ports, journal)
    await notary.open()
    for known in recording.events:
        if isinstance(known.event, Promised):
            await notary.promise(known.entity, known.id, known.event)
        await ports.ledger.append(known.entity, known.id, known.event, None)
