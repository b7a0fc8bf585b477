"""The HTTP side: inference routes, the cluster view, health.

Belongs here: ASGI endpoints, routing a request, forwarding, requests in flight.
Does not: deciding or changing what runs.
"""
