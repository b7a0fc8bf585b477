"""The other agents of the cluster: who they are, what they say of themselves, how busy they are."""
