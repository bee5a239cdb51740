"""tfgraph."""
