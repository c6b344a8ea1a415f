"""What makes the device wait for the host: batches, launches, synchronisation, copies."""
