"""What runs inside engine child processes: stdlib only, and nothing here measures or scores.

Laid out for a child as the package `child`, so every import among these files is relative.
"""
