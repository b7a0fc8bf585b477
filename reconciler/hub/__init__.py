"""Stores that model files come from: an S3 store, a directory.

Belongs here: listing a prefix, reading an object.
Does not: where files end up on the node (cache).
"""
