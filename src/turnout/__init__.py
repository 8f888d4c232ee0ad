"""Differentially private learning from devices that turn up when they like."""

__version__ = "0.1.0"
