"""Which rank holds up a job that hangs, from what each rank was waiting in. Begin with `late_ranks.py`."""
