"""Address settings: their values, units and layers, and the patterns that they stand under. Pure."""
