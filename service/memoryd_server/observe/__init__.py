"""What operators see of the daemon beside its answers: the log, and the doctor's checks."""
