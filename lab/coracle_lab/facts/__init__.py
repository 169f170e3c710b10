"""Reads what decides a measurement besides the program: machine, node, mapped files."""
