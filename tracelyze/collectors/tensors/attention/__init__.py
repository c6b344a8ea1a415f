"""What autograd saved of attention: weights masked too late, and positions that see the next one."""
