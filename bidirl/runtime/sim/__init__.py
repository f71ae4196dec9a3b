"""The simulated world: virtual time, workloads, and a cluster that models durations. Needs numpy and nothing else."""
