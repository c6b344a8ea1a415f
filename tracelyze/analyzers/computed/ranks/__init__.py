"""Measures of what ranks have in common: small enough to be taken of each, and compared in one place."""
