"""What only a machine with a GPU can show: `python -m tests.gpu`, or `make gpu-check`.

Belongs here: detection beside the vendors' own tools, a real engine on a GPU, what it takes of the
memory and gives back. Does not: anything that a library in the driver's place can show as well.
"""
