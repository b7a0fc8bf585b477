"""The one loop of the agent: observe, plan, dispatch, publish (R1).

Belongs here: the tick, the books of failures, how a plan becomes a published status.
Does not: effects (apply), decisions (plan), HTTP.
"""
