"""Decides, without touching the world: desired + observed + now → actions with reasons.

Belongs here: ids, the desired and the observed state as values, states, actions, the planner.
Does not: asyncio, os, time, logging, settings, or anything else that reads or changes the world.
"""
