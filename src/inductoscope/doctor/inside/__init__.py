"""The doctor inside the user's process: shadows compiled graphs and investigates a failure."""
