"""The nodes to keep in float so that a cell passes again, and the schema file that does so."""
