"""Where the collector stands in torch: functions wrapped on their classes and modules, never on instances.

Begin with `install`. What a hook sees goes to a recorder (`recording`), which never raises.
"""
