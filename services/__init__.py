"""The chassis every room stands on: actor, bus, ledger, blobs, broker, supervisor, telemetry."""
