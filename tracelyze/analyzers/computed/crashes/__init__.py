"""Exceptions that ended a program: what they say, which are well known, and which ranks they ended besides."""
