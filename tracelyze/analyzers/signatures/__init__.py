"""What can be said when only curves were recorded: one module per rule whose mechanism was not observed directly.

`hangs` reads which rank holds up the others from what each of them waited in.
"""
