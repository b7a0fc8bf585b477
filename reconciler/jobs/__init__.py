"""Long work that outlives a request, and the agent: imports into the hub.

Belongs here: what was asked for, how far it is, what came of it, across restarts.
Does not: the work itself (hub).
"""
