"""A small CNN on Fashion-MNIST with Flower; fedpick chooses the clients."""
