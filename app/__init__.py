"""The window: Qt lives only here, over core's plain data."""
