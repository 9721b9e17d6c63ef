"""What things cost on this machine: sizes and speeds, measured."""
