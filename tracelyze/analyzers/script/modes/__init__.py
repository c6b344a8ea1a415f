"""Lines and edits about the modes of modules: training or evaluation."""
