"""The live page of a run: `life.feed` writes small files next to the recording, `server` shows them in a browser.

The run writes at most twenty times a second, into files of a fixed size; another process reads them.
"""
