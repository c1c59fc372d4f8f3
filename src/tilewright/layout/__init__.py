"""CuTe's layout algebra, the layouts of atoms, bank conflicts, and how to be rid of them.

Exact and pure: integers and nested tuples in, frozen values out. What has no layout as its answer is refused.
"""
