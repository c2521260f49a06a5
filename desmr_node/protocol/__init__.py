"""The node as a state machine: messages in, effects out; no socket, clock, thread, die or logger."""
