"""Runs that other programs recorded, as run directories: one module per format.

It stands beside the collectors, not among them: it runs when somebody asks for a diagnosis, never inside a training.
It may import the schema of the run directory, the collectors' storage (`stream`, `identity`), `redaction`, `errors`,
and, where a format needs it, the library that wrote the file, inside the function that uses it. Analyzers do not
import it, nor does it import them: both know the run directory only.

Begin with `run_builder`: a reader of a format fills a `Log`, and `write_run` makes a run directory of it.
"""
