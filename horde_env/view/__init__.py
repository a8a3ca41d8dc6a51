"""The pen as a person sees it: drawn, in a picture or a window."""
