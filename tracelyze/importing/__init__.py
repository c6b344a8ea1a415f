"""Runs that other programs recorded, as run directories: one module per format, in `logs`, `trackers` and `dumps`.

It stands beside the collectors, not among them: it runs when somebody asks for a diagnosis, never inside a training.
It may import the schema of the run directory, the collectors' storage (`stream`, `identity`), `redaction`, `errors`,
and, where a format needs it, the library that wrote the file, inside the function that uses it. Analyzers do not
import it, nor does it import them: both know the run directory only.

Begin with `recordings`, which finds out what a file or folder is. A format's `read` fills a `Log` with the columns as
they are called there, `columns` says what each means, and `run_builder.write_run` makes a run directory of it.
What `job_logs` reads becomes no run: a diagnosis joins it to one.
"""
