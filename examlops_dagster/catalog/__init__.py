"""Declarations made outside code, kept in platform.db."""
