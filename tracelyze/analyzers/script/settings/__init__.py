"""Where the script sets what a finding asks to change: an argument of a framework, or a constant under a name."""
