"""Products that autocast does not reach, and regions that hold all calls of a model: the lines that mend them."""
