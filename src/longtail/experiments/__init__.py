"""Many runs: sweeps, searches, benchmark plans and published rows."""
