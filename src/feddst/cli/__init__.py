"""The command line. Its options are the declarations of the config dataclasses, and nothing else."""
