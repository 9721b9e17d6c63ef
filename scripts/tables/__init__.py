"""Fills in the tables of the pages from the records in `results/`: `make docs-tables`.

A page says which table stands where, in a comment that the page does not show:

    <!-- record: accuracies table1-paper fedavgm randommask feddst -->

    | …

    <!-- end -->

The first word names a function of this package, the others are its arguments. What is between the two lines is what
the function returns, and is written anew each time: edit the function, or the arguments, never the table.

- `blocks`: finding and filling such blocks.
- `records`: reading records, and the caption that says where a table comes from.
- `accuracy`: accuracies and differences of reproductions and studies.
- `comparisons`: what `feddst compare` writes.
- `paper`: the paper's tables and sweeps, beside what it reports.
- `growth`: what else the studies of masks and of growth tell.
- `speed`, `server`, `traffic`: rounds, steps, many clients, bytes and links.
- `summary`: what several pages show in short.
- `benches`: the pages that are made as a whole.
"""
