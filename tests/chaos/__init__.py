"""Random steps against one real agent, drawn from a seed, and what must hold during and after them.

Here: the table of steps, the oracle of what is desired, invariants, and what must not be left.
Not here: single faults with their own assertions; those stand beside the code that they are of.
"""
