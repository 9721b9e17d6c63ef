"""Triton kernels for M models side by side.

A layer's output is [M, channels, rows, columns, images]: the images of one pixel lie together, so that every load is
wide and aligned. Modules here import Triton, and are imported only where it is used.
"""
