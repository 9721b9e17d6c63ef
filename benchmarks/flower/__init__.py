"""Flower deployments on this machine: their bytes on the line, slow links, and rounds in which nothing is done."""
