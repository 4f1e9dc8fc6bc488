"""Limits of what importers write out."""

MAX_STEPS = 1024  # steps of a loop or of a recurrent layer
MAX_LOOP_NODES = 1 << 16  # nodes of the IR that a loop becomes
