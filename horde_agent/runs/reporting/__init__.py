"""Pages, pictures and exports made from the files of a run."""
