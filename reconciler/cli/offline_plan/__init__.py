"""A plan that asks no node: from two manifests, a file that says what the nodes are, and a hub.

Here belongs what takes the place of an agent's own knowledge. What is planned of it is the
planner's; nothing here decides what runs where.
"""
