"""What the design allows in this release; a line goes with the part that it waits for."""

ADOPTS = False
"""Backends outlive an agent that is killed (R9)."""
SURGES = True
"""A changed model starts beside its predecessor (`strategy: auto` on CPU)."""
REVERTS = False
"""The last good spec comes back where the new one failed (R7)."""
