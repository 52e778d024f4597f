"""What users see: terminal, JSON, page, exports. Views render what others computed."""
