"""What the kernel, SLURM and py-spy say of a job. None of it becomes the steps of a run: it is read beside one."""
