"""Every policy over a grid of simulated cells. Run: ``python -m experiments.cells``."""
