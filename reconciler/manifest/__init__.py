"""Text → desired state: YAML with marks, the v1alpha1 model, union of files, selection for a node.

Belongs here: everything that knows the manifest's fields.
Does not: reading files, or any other input or output (PURE).
"""
