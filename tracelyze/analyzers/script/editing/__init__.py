"""What a fix shows, in the program's own words: its names, its command, and its lines as Python's parser reads them.

Begin with `own_names`. :mod:`edits` and :mod:`line_edits` beside this folder are what rules ask for.
"""
