"""Many clients' models side by side on one device, trained in lockstep."""
