"""What any predictor must beat, and the recorded measurements."""
