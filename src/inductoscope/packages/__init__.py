"""AOTInductor packages: what is in one, whether it fits this machine, and how it runs."""
