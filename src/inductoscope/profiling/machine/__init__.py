"""What the machine can do: measured once, and kept."""
