"""Views: plain dictionaries built from the model, then printed or written as JSON."""
