"""What feeds a training, made anew: `own_iterators` over a loader, `generator_seeds` that its samples draw by."""
