"""The way of a message: published, settled, failed, dead-lettered, redriven. Every change of a reference happens here."""
