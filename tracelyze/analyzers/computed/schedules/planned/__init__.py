"""How far a training was to go, by the loop over its epochs, and how far it went."""
