"""The way of a message: published, handed out, settled, failed, dead-lettered, redriven."""
