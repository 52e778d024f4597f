"""Views of commands: plain dictionaries built from the model, printed or written as JSON."""
