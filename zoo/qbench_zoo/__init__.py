"""The zoo of qbench: trained networks, the data they are judged on, and how both are read and
made.
"""
