"""The zoo's networks whose weights come without a graph, written node by node."""
