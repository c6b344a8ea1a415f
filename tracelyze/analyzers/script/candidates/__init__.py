"""Lines of the script that can have done it, where one alone can: read off its text, beside what was measured."""
