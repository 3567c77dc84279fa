"""Short texts in LanceDB, recalled by meaning."""
