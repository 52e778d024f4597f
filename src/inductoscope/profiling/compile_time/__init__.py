"""Where compile time goes, how it grows with the graph, and whether that is too much."""
