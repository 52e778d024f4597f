"""Output on the terminal, as JSON, as HTML page and as exports; nothing is computed here."""
