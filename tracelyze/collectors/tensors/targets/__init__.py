"""What the targets of a loss show of the data: columns that hold them, and the order that they are kept in; and the
targets of sequences beside the ids that the model was given."""
