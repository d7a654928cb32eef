"""The pure core: decides from arguments and touches nothing.

No dagster, no files, no processes, no clock: the time, the records and the environment are
arguments. The rooms above it fetch those and act on what is decided here.
"""
