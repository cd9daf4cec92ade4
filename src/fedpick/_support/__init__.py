"""What is not about federated learning: files, archives, native code, devices, users' code, text, web."""
