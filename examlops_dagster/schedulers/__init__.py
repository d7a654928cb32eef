"""Batch schedulers: submit, ask, cancel. One contract, one file for each scheduler."""
