"""How good answers are: votes, agreement, annotators, and combined preferences."""
