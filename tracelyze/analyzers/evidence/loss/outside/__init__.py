"""What broke a loss outside of its graph, where no gradient passes."""
