"""BSFL: Ben Ami, Cohen & Zhao (2023), a file for each figure."""
