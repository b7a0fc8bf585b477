"""The composition root: makes the parts of one agent, wires their protocols, runs and ends them.

Belongs here: the data folder's identity, start, shutdown.
Does not: anything that could be tested without the others.
"""
