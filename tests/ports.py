"""Ports for servers that are told theirs."""

import random
import socket

BELOW_THE_KERNELS = range(20_000, 32_000)
"""The kernel gives out higher ones, to a connection of anybody, at any time."""

_choice = random.SystemRandom()


def free_port(host="127.0.0.1"):
    """Give a port of a host on which nobody listens."""
    while True:
        port = _choice.choice(BELOW_THE_KERNELS)
        with socket.socket() as found:
            try:
                found.bind((host, port))
            except OSError:
                continue
            return port
