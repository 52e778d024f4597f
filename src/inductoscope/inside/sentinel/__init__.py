"""Long training: calls shadowed at random, and their signed error tested for a bias."""
