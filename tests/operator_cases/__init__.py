"""One-operator models and data drawn by hypothesis, for every test that holds the interpreter
against an engine.
"""
