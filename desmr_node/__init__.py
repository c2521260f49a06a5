"""Decentralised surrogate median regression over private rows."""

__version__ = "0.1.0"
