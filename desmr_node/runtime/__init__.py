"""What runs a machine: the worker that owns the rows, the daemon around real streams, the simulation."""
