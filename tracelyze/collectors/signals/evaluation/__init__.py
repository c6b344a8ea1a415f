"""What is recorded of evaluation passes: which calls make one up, in which mode, and the losses computed of them."""
