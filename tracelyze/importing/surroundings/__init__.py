"""Logs of what surrounds a job: the kernel's, SLURM's, and py-spy's dumps of its processes."""
