"""Where models come from and what their files say, as a plan (tensors) and a text side. It computes nothing."""
