"""How the weights that are ours were made: numpy, seeded, rerun by hand and never by a bench."""
