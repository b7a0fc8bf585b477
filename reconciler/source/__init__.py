"""Where manifest bytes come from: a directory, a file or a git repository.

Belongs here: reading, watching, the last good version on disk.
Does not: YAML, or any idea of what a model is.
"""
