"""Two ways to run one model: whether their outputs differ, by how much, and the first node that
differs.
"""
