"""How models are computed: by ONNX Runtime, PyTorch layers, and kernels for a CPU and a GPU.
Importing this package imports nothing else: compiled code needs no PyTorch."""
