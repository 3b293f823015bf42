"""From a folder of submissions to a table and a page."""
