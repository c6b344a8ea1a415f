"""Learning rates, what is known of their schedulers, and how far a training was to go.

Begin with `schedulers`.
"""
