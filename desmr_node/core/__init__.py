"""Arrays in, arrays out: the whole statistical method, without a socket, a clock or a thread."""
