"""Lines at which a script divides a sum of losses by the number of its targets."""
