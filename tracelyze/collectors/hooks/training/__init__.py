"""What a training step calls: modules, losses, backward, the clip and the scaler, the optimizer."""
