"""A small CNN on Fashion-MNIST over Flower; fedpick chooses who trains."""
