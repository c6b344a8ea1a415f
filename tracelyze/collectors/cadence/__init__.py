"""How often a sampled signal looks: within the budget of the run, and more rarely as the run gets longer.

Begin with `budget`. Imports nothing else of the collector.
"""
