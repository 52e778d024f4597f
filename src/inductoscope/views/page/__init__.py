"""One self-contained HTML page of a recording: its data, and the HTML file."""
