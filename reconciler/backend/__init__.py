"""The engines: which can run here, and the argv and environment that starts them.

Belongs here: pure launch values, the choice of a backend, the xllamacpp child program.
Does not: spawning, killing, probing.
"""
