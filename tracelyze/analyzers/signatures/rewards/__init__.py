"""What logged rewards say of the function that gives them, and what a policy's own numbers say beside them."""
