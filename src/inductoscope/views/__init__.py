"""Terminal, JSON, page and exports. Views render what others computed."""
