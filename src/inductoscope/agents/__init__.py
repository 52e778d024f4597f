"""The interface for agents: commands as tools of an MCP server, and a skill that explains them.

A tool call runs one command line in a child process, so nothing of the user's program is in the
server. The result is the JSON that `--json` writes. Logs and recordings are untrusted: their text
is returned as data.
"""
