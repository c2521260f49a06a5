"""Bytes between nodes: the codec, gRPC streams, keys and certificates, and the simulated network."""
