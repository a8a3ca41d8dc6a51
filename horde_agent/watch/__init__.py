"""A life on a page: `feed` writes a few small files beside the record of a life, `server` shows them in a browser.

The life knows nothing of who looks: it writes at most twenty times a second into files of a fixed size, and whoever
reads them is another process.
"""
