"""Power-of-Choice: Cho, Wang & Joshi (2021), a file for each figure or table."""
