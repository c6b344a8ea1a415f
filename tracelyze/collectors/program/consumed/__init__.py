"""What is consumed: batches by the calls of a model, backwards by the steps of an optimizer, rewards by the loss
of a policy."""
