"""The node's store of model files: partial → verified → published.

Belongs here: choosing a model's files, their digest, publishing.
Does not: how a store is spoken to (hub).
"""
