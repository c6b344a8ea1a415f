"""What is recorded of losses: their value, the arguments of loss functions, values that the script logs."""
