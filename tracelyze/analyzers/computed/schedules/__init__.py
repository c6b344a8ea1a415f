"""Learning-rate schedulers against the steps that they were made for.

Begin with `schedulers`, what is known of each; `mismatches` are the ways in which one does not fit its training.
"""
