"""An example of extending tfgraph from another package. Nothing in tfgraph knows it."""
