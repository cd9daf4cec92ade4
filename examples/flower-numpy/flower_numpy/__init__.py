"""Softmax regression over Flower, in NumPy alone; fedpick chooses who trains."""
