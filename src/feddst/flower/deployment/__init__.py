"""Flower's processes on this machine: all that knows its programs, ports, certificates and keys."""
