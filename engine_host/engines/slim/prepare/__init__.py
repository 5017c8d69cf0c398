"""Bounded, untimed steps between building an engine and serving: each module may define
`prepare(engine)`. The start release has none."""
