"""Arrays in, numbers out: accuracy by group, calibration, intervals. Every accuracy is a fraction
in [0, 1].
"""
