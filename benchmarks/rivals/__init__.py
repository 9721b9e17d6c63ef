"""Other ways to do the same job: PyTorch in plain processes, and other frameworks' simulations.

Every module here but `torch_processes` runs in the environment of another framework, where feddst is not installed:
they import nothing of feddst, only PyTorch, numpy, one another and that framework.
"""
