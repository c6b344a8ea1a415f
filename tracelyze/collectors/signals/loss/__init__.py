"""What is recorded of losses: their value, the arguments of loss functions, evaluation passes, values that the script
logs.
"""
