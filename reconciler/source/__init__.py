"""Where manifest bytes come from: a directory or file now; git and the Kubernetes API later.

Belongs here: reading, watching, the last good version on disk.
Does not: YAML, or any idea of what a model is.
"""
