"""Everything that is declared, in order and in words: the diagnoses with their thresholds, and the pages of docs/.

Begin with `entries`. Imports the analyzers and, for the page about signals, the collectors.
"""
