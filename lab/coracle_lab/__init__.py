"""What does a container cost? Measured for any program, with intervals and a verdict."""
