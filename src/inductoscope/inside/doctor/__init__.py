"""The doctor inside the user's process: checks compiled graphs and investigates a failure."""
