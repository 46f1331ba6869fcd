"""Whether a pass does to numbers what it declares: changed regions cut out of a graph and run
before and after.
"""
