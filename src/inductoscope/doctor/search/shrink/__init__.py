"""Makes a failing candidate smaller: nodes, then shapes, constants, values and settings."""
