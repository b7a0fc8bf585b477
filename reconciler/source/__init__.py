"""Where manifest bytes come from: a directory, a file, a git repository or a ConfigMap.

Belongs here: reading, watching, the last good version on disk.
Does not: YAML, or any idea of what a model is.
"""
