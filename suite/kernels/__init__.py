"""CUDA C++: the measuring harness and the template instantiation source."""
