"""Judges records and shows them: what the terminal's table and the HTML page have in common.

`judged` judges; `analysis` gathers everything that is said of one design; `pictures` makes values
for the figures of it, `tables` tables; `page` writes it down. Nothing here starts a program: the
records are all that is needed, wherever they were made.
"""
