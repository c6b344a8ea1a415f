"""Losses that a script writes out by itself instead of calling a function, read from the graph behind them."""
