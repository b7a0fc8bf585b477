"""What `doctor` looks at: one module a subject, each giving findings, none changing anything.

Belongs here: reading this machine, the data folder, the manifest, the hub, the engines, the agent.
Does not: printing; anything that an agent does by itself.
"""
