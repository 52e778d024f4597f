"""The doctor outside the user's process: runs the program, weighs hypotheses, gives the verdict."""
