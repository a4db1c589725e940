"""The command ``homing``: one file a subject. It talks to a broker through the public client."""
