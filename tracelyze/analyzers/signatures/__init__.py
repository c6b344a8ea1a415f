"""What curves alone tell, where no mechanism was observed: shapes that several rules read."""
