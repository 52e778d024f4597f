"""A program compiled as every rank of a job, on one machine, before the job is started."""
