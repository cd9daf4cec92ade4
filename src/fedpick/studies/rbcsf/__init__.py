"""RBCS-F: Huang, Lin, Wu, He, Li & Zomaya (2021), a file for each figure."""
