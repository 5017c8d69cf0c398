"""All of Perpetune on one machine: an embedded broker and the rooms as its child processes."""
