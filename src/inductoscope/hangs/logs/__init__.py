"""What torch's own logs say.

Nothing here imports torch: a log file from another machine is read where it lies. The package
itself imports nothing, for the table of patterns is also needed inside of the user's process.
"""
