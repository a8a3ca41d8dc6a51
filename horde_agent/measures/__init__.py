"""Measures of prediction quality: truncated returns, NMSRE, MSPBE, RUPEE, UDE."""
