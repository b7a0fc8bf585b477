"""The command line: reads argv and the environment once, prints for people or as JSON.

Belongs here: one module a command.
Does not: logic that another entry point would need.
"""
