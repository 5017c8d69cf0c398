"""What a campaign's ledger and evidence say, for people: `summary.json` and `report.html`.

`record.py` folds events into a record; everything else here reads that record and blobs only.
"""
