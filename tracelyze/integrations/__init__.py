"""Callbacks that pass on to the recorder what a framework knows and the hooks cannot see. Each imports its framework.

They are optional: without them a framework's training is recorded and diagnosed all the same. They do nothing when
nothing is recorded, and never raise into the training.
"""
