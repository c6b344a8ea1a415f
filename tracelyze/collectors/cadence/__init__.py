"""How often a sampled signal samples: within the budget of the run, and more rarely as the run gets longer. What
recording costs.

Begin with `budget`. Imports nothing else of the collector.
"""
