"""Every way in which a program can end, and what each command says about it."""
