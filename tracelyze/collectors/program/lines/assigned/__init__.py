"""Lines that assign: the steps of an optimizer of the script, and parts that are put into something else; and those
that drop what they compute."""
