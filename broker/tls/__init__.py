"""The broker's certificate: taken up, watched, and made for a first try."""
