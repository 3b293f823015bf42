"""The workloads and template spaces that ship with tilearena, as YAML."""
