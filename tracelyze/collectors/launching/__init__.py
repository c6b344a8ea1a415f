"""How a program is started with the collector in it: `launch` prepares the environment and becomes the program,
`inject/sitecustomize.py` runs in every Python process of it, `obstacles` says what would keep the collector out.

Begin with `launch`. Imports `system` and the options.
"""
