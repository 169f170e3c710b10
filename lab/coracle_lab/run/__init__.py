"""Runs rows through ReFrame, times them, and records each attempt."""
