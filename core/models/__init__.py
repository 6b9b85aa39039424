"""The networks, each written like its paper's table."""
