"""Spark itself: its session, its Java, its memory, and what is computed once and read several times."""
