"""Participation."""
