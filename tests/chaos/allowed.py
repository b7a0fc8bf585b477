"""What the design allows in this release; a line goes with the part that it waits for."""

UNSEEN_SECONDS = 5.0
"""An agent looks at its backends' processes every two seconds. One that loses its parent and is
killed, or stands still, before that, leaves nothing by which the next agent could prove that the
process is ours: it is reported and left alone (R9)."""
SURGES = True
"""A changed model starts beside its predecessor (`strategy: auto` on CPU)."""
REVERTS = False
"""The last good spec comes back where the new one failed (R7)."""
