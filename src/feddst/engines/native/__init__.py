"""Sparse training on a CPU with compiled kernels, for chains of the layers that they know.

`library` says whether this installation has the kernels; `client` and `engine` can be imported only if it does.
"""
