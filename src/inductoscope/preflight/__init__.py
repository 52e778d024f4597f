"""The preflight check: compiles a program as every rank of a job, on one machine, beforehand."""
