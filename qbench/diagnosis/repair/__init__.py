"""Which nodes to keep in float so that a cell is green again, and the schema file that does so."""
