"""Logs: text, CSV or JSON that a program prints or writes while it trains."""
