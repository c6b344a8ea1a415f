"""What the loss and the state do while gradients grow without bound, one file for each way.

Begin with `loss_alongside`.
"""
