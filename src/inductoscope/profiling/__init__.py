"""Where time goes: measured, with its spread, and what would be faster."""
