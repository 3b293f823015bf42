"""What other tools write and read: recordings from foreign files, and recordings in other formats."""
