"""FedGS: Wang et al. (2023), a file for each figure or table."""
