"""Many runs in one call: `tracelyze fleet` judges every run below folders and buckets and writes one table.

Begin with `judging`: a row with a path becomes a row with the run's checks, in one process, whatever the run holds.
`discovery` finds the runs, `storage` reads buckets, `local` and `ray_cluster` spread the work, `table` declares the
result, `summary` and `page` say what goes wrong most. It may import everything but the collectors.
"""
