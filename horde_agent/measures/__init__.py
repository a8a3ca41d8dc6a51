"""How well demons do: returns, NMSRE, MSPBE, RUPEE, UDE."""
