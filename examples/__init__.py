"""Things to try. Nothing here is installed with the package."""
