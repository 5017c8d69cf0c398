"""A room that is there and does nothing."""

import signal

signal.signal(signal.SIGTERM, lambda *_: exit(0))
while True:
    signal.pause()
