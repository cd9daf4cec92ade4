"""Softmax regression with Flower and NumPy; fedpick chooses the clients."""
