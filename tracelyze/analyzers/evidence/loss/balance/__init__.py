"""What is to balance the experts of a mixture, and does the opposite: a term of the loss, a bias on the choice."""
