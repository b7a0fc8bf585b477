"""Looks at the world and says what is there: processes, readiness, progress, devices.

Belongs here: reading /proc, probing a backend.
Does not: changing anything.
"""
