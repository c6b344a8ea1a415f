"""What can be said when only curves were recorded: one module per rule whose mechanism was not observed directly."""
