"""The project's version; a test compares it with the build's."""

__version__ = "0.1.0"
