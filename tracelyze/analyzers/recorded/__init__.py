"""A recorded run as it was left on disk: finding and finishing its files, tables, processes, trainings, how it ended.

Begin with `run_directory` (reads) and `run` (what rules see). Imports the schema; knows no rule.
"""
