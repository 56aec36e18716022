"""The verbs of `longtail`. Torch is imported inside the verbs that compute, so that help answers at
once.
"""
