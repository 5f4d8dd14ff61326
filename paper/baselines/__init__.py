"""Methods that the paper compares with."""
