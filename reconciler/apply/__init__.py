"""Performs what the plan orders, idempotently: files, spawns, the ladder of death.

Belongs here: effects, spawn records, log files of backends.
Does not: deciding.
"""
