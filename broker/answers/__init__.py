"""What a running broker answers to each call (docs/protocol.md, 2.7): the maps that management writes, and that commands and pages read.

They are open: a newer broker tells more. Times are ms since 1970, sizes bytes; None: it is not known, or there is none.
"""
