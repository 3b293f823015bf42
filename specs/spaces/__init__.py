"""Space specs: which templates are candidates."""
