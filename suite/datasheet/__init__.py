"""What is recorded, described and published: the page, its tables and pictures, and the folder for others."""
