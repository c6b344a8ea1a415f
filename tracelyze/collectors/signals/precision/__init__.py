"""What is recorded of mixed precision: autocast, the loss scale, how a GradScaler is used."""
