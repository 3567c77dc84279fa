"""The entry store: short texts that an agent stores and recalls by meaning, in LanceDB.

LanceDB itself is imported when the first dataset is opened: it takes seconds and is an extra.
"""
