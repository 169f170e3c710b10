"""Campaigns: files of several figures, each with its design (`lab/papers`).

`parse` makes a `Campaign` of a file at one size, `groups` finds out which environments its
figures have on this host, `kept` holds their records, and `runner` makes one after the other.
"""
