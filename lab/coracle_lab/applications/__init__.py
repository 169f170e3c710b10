"""Applications: the programs that are measured, as entries of a table.

The built-in table is `apps/*.toml`; users add files with `--applications FILE`, in the same form,
which `docs/lab-applications.md` describes. A design takes an entry by

    [application]
    use = "ep"
    parameters = { class = "W" }

`resolve` puts the entry into the text of the design, so that the records hold all that was run.
`builds` makes the program of its source, `images` the image that it runs in.

This package starts the commands of tables; it neither runs rows nor judges them.
"""

from coracle_lab.applications.resolve import resolve
from coracle_lab.applications.table import Table, table

__all__ = ["Table", "resolve", "table"]
