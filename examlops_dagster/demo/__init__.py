"""A real example: a model of handwritten digits, from images that are delivered bit by bit.

`assets` declares it, `delivery` plays the outside world that delivers the images, and
``python -m examlops_dagster.demo`` (``make demo``) is a tour through both.
"""
