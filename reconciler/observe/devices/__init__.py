"""Asks the machine which GPUs it has. Only `survey` and `cards` run in the agent's own process.

Belongs here: one file for each source of answers, and the short-lived child that asks them.
Does not: numbering the devices, masks, who holds them (`plan`).
"""
