"""What logged rewards say of the function that gives them."""
