"""What is recorded of files of weights, and of states that models take in."""
