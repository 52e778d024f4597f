"""Where memory goes: what is alive at the peak, who made it, and what would need less."""
