"""Settings of Inductor tried on the program: what is faster, and what only seems so."""
