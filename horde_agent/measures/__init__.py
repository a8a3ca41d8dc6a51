"""How well demons do: truncated returns, NMSRE, MSPBE, RUPEE, UDE. Nothing here knows a life."""
